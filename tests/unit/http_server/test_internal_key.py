"""The key that gateway and verifier share."""

import stat
from pathlib import Path

import pytest

from aetheris.http_server.internal import InternalKey, InternalKeyMissing, kept_in


def test_it_is_made_in_dev_alone_once_and_for_us_alone(tmp_path: Path) -> None:
    with pytest.raises(InternalKeyMissing):
        InternalKey.load(None, tmp_path, dev=False)
    InternalKey.load(None, tmp_path, dev=True)
    made = kept_in(tmp_path).read_bytes()
    assert stat.S_IMODE(kept_in(tmp_path).stat().st_mode) == 0o600
    InternalKey.load(None, tmp_path, dev=True)
    InternalKey.load(None, tmp_path, dev=False)
    assert kept_in(tmp_path).read_bytes() == made


@pytest.mark.parametrize("content", ["", "no hex", "ab" * 31])
def test_a_file_that_holds_no_key_is_refused_without_its_content(tmp_path: Path, content: str) -> None:
    (tmp_path / "key").write_text(content)
    with pytest.raises(InternalKeyMissing) as refused:
        InternalKey.load(tmp_path / "key", tmp_path, dev=True)
    assert not content or content not in str(refused.value)
