"""Dead letters are addressed by their place."""

import pytest

from aetheris.cli.commands import dlq
from aetheris.cli.console import CommandError, Exit
from aetheris.protocol.base.topics import Topic

REQUESTS = Topic.TOOLS_REQUESTS


@pytest.mark.parametrize("suffix", ["", ".dlq"])
def test_an_address_names_the_topic_or_its_dead_letters(suffix: str) -> None:
    assert dlq.address(f"{REQUESTS}{suffix}/1/42") == dlq.LetterAddress(REQUESTS, 1, 42)


@pytest.mark.parametrize("text", ["", "1/2", "nope/0/0", f"{REQUESTS}/0", f"{REQUESTS}/-1/0", f"{REQUESTS}/0/0/0"])
def test_no_address(text: str) -> None:
    with pytest.raises(CommandError) as refused:
        dlq.address(text)
    assert refused.value.ends is Exit.BAD_INPUT
