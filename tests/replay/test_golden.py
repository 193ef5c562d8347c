"""Streams that released versions wrote: this version reads them to the very same outcome."""

from pathlib import Path

import pytest

from tests.testkit.golden import FOLDER, outcome

STREAMS = sorted(FOLDER.glob("*/*.jsonl"))


@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_old_stream_comes_to_its_outcome(stream: Path) -> None:
    assert outcome(stream) == stream.with_suffix(".outcome.json").read_text()


def test_every_release_is_among_them() -> None:
    assert {path.parent.name for path in STREAMS} == {"0.1"}
