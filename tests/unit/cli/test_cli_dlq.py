"""Dead letters are addressed by their place."""

import json
from collections.abc import Generator

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.commands import dlq
from aetheris.cli.console import CommandError, Exit
from aetheris.protocol.base.topics import Topic
from tests.testkit.consoles import DEAD_LETTERS, StandInGateway, stand_in_gateway
from tests.testkit.tokens import token_of

LETTER = "{topic}/{partition}/{offset}".format(**DEAD_LETTERS[0][0])
REQUESTS = Topic.TOOLS_REQUESTS


@pytest.mark.parametrize("suffix", ["", ".dlq"])
def test_an_address_names_the_topic_or_its_dead_letters(suffix: str) -> None:
    assert dlq.address(f"{REQUESTS}{suffix}/1/42") == dlq.LetterAddress(REQUESTS, 1, 42)


@pytest.mark.parametrize("text", ["", "1/2", "nope/0/0", f"{REQUESTS}/0", f"{REQUESTS}/-1/0", f"{REQUESTS}/0/0/0"])
def test_no_address(text: str) -> None:
    with pytest.raises(CommandError) as refused:
        dlq.address(text)
    assert refused.value.ends is Exit.BAD_INPUT


def say(gateway: StandInGateway, *argv: str) -> tuple[int, str, str]:
    env = {"AETHERIS_URL": gateway.url, "AETHERIS_TOKEN": token_of("bob")}
    done = CliRunner().invoke(app, ["dlq", *argv], env=env)
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def gateway() -> Generator[StandInGateway]:
    with stand_in_gateway() as running:
        running.say_operations()
        yield running


def test_it_asks_the_gateway_and_shows_bytes_only_when_asked(gateway: StandInGateway) -> None:
    assert [one["offset"] for one in json.loads(say(gateway, "ls", "--json")[1])["dead_letters"]] == [7, 0]
    code, text, _ = say(gateway, "show", LETTER)
    assert (code, "script" in text, "42" in text) == (0, False, True)
    code, text, _ = say(gateway, "show", LETTER, "--bytes")
    assert (code, text.startswith('{"reason": "<script>')) == (0, True)


def test_one_that_is_refused_keeps_no_other_back(gateway: StandInGateway) -> None:
    assert say(gateway, "redrive", "--reason", "r", "--yes")[0] == 2
    gateway.refused_posts[f"/dead-letters/{LETTER}/redrive"] = "nobody can decode it"
    assert say(gateway, "redrive", LETTER, "--reason", "r", "--yes")[0] == 1
    code, text, _ = say(gateway, "redrive", "--all", "--reason", "r", "--yes", "--json")
    assert (code, json.loads(text)) == (1, {"redriven": [], "refused": {LETTER: "nobody can decode it"}})
    del gateway.refused_posts[f"/dead-letters/{LETTER}/redrive"]
    gateway.answers[f"/dead-letters/{LETTER}/redrive"] = {
        **DEAD_LETTERS[0][0],
        "redriven_at": "now",
        "redriven_by": "b",
    }
    code, _, told = say(gateway, "redrive", "--all", "--reason", "upgraded", "--yes")
    assert (code, "redriven at now, by b" in told) == (0, True)
    ((_, said, _),) = gateway.said
    assert said == {"path": f"/dead-letters/{LETTER}/redrive", "reason": "upgraded"}  # of commands alone
