"""How the notifier is put together."""

from pathlib import Path

import pytest

from aetheris.notifier.loaded_routes import NoticesUnusable, load
from aetheris.notifier.settings import NotifierSettings


def settings(**more: str) -> NotifierSettings:
    return NotifierSettings.model_validate({"notices": "notices.toml", "gateway_token": "token", **more})


def test_the_token_is_a_credential_that_is_kept_from_tools() -> None:
    assert Path("token") in settings().credential_files


@pytest.mark.parametrize("text", ["", "[[channels]]\n", None])
def test_a_routing_file_that_is_none_is_refused_by_its_name(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "notices.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(NoticesUnusable, match=r"notices\.toml"):
        load(file)
