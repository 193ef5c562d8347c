"""`--label NAME=VALUE`."""

import pytest

from aetheris.cli.console import CommandError
from aetheris.cli.labels import labels_of


def test_labels_are_read_as_they_are_written() -> None:
    assert labels_of(["order=4711", "note=a=b"]) == {"order": "4711", "note": "a=b"}
    assert labels_of(None) == {}


@pytest.mark.parametrize("texts", [["order"], ["=x"], ["a="], ["a b=c"], ["a=1", "a=2"], ["a=x\ny"]], ids=str)
def test_what_is_no_label_is_refused_before_it_is_sent(texts: list[str]) -> None:
    with pytest.raises(CommandError, match="--label"):
        labels_of(texts)
