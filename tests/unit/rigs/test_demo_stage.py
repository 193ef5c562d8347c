"""A demo that stops says why, word for word."""

from pathlib import Path

import pytest

from aetheris.cli.embedded.errors import EmbeddedError
from aetheris.rigs.demo.progress import Say
from aetheris.rigs.demo.stage import report


class Nothing:
    as_promised = True


def test_an_error_keeps_its_brackets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def play(_folder: Path, _say: Say) -> Nothing:
        raise EmbeddedError("not fetched", "see [repositories] in the settings")

    assert report(tmp_path, play, lambda _outcome, _say: None, keep=False) == 1
    assert "[repositories]" in capsys.readouterr().out
