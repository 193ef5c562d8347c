"""Streams that released versions wrote: this version reads them to the very same outcome."""

from importlib.metadata import version
from pathlib import Path

import pytest

from aetheris.cli import streamfile
from tests.testkit.golden import FOLDER, outcome

STREAMS = sorted(FOLDER.glob("*/*.jsonl"))


@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_old_stream_comes_to_its_outcome(stream: Path) -> None:
    assert outcome(stream) == stream.with_suffix(".outcome.json").read_text()


def test_seals_among_them_state_the_calls_that_they_cover() -> None:
    sealed = {path.stem for path in STREAMS if any(b'"calls":"' in one.value for one in streamfile.read(path).raw())}
    assert sealed >= {"a-run", "a-crash", "undone"}, "whose calls have external ids"


def test_every_release_is_among_them_and_so_is_this_version() -> None:
    lines = (FOLDER / "releases.txt").read_text().splitlines()
    released = {line for line in lines if line and not line.startswith("#")}
    assert {path.parent.name for path in STREAMS} == released
    assert version("aetheris-protocol") in released
