"""What the brokers say of a group: who joins is waited for, and of one name that is known which all of it know."""

import json
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from aetheris.protocol.tables.attendants import Attendant
from aetheris.runtime.kafka import members
from aetheris.runtime.kafka.assignor import GroupAssignor
from aetheris.runtime.log.interface import LogUnreachable

LIVES = ("-01234567-0123-0123-0123-0123456789ab", "-11234567-0123-0123-0123-0123456789ab")


def member(name: str, life: int, said: bytes) -> tuple[Any, ...]:
    """As a broker describes one."""
    return (name + LIVES[life], "client", "/host", said, b"")


def knows(*rules: object) -> bytes:
    """What a member says when it joins."""
    return ConsumerProtocolMemberMetadata(0, ["topic"], json.dumps({"rules": rules}).encode()).encode()


def brokers_say(monkeypatch: pytest.MonkeyPatch, *answers: tuple[str, Sequence[tuple[Any, ...]]]) -> list[str]:
    """Each answer once, the last for ever; the states that were told."""
    told: list[str] = []

    async def described(*_: object) -> tuple[str, Sequence[tuple[Any, ...]]]:
        answer = answers[min(len(told), len(answers) - 1)]
        told.append(answer[0])
        return answer

    monkeypatch.setattr(members, "_described", described)
    monkeypatch.setattr(members, "_PAUSE_S", 0)
    return told


@pytest.mark.parametrize("order", [1, -1])
async def test_of_one_name_that_is_known_which_each_life_of_it_knows(
    monkeypatch: pytest.MonkeyPatch, order: int
) -> None:
    lives = [member("gateway", 0, knows(1)), member("gateway", 1, knows(1, 2)), member("other", 0, knows(1, 2))]
    brokers_say(monkeypatch, ("Stable", lives[::order]))
    assert await members.attendants("b", "g") == {
        "gateway": Attendant(frozenset({1})),
        "other": Attendant(frozenset({1, 2})),
    }


async def test_who_says_nothing_that_can_be_read_knows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"none": b"", "text": knows("2"), "truth": knows(True), "torn": knows(1, 2)[:-3]}
    brokers_say(monkeypatch, ("Stable", [member(name, 0, one) for name, one in said.items()]))
    assert await members.attendants("b", "g") == dict.fromkeys(said, Attendant(frozenset()))


async def test_who_joins_says_which_version_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    own = GroupAssignor().metadata(["topic"]).encode()
    newer, torn, long = (
        ConsumerProtocolMemberMetadata(0, ["topic"], json.dumps({"rules": [1], "version": said}).encode()).encode()
        for said in ("9.9.9", "1.0\n2.0", "1" * 41)
    )
    lives = [member("here", 0, own), member("both", 0, own), member("both", 1, newer), member("torn", 0, torn)]
    brokers_say(monkeypatch, ("Stable", [*lives, member("long", 0, long)]))
    found = await members.attendants("b", "g")
    assert {name: one.version for name, one in found.items()} == {
        "here": version("aetheris-runtime"),
        "both": None,
        "torn": None,
        "long": None,
    }


async def test_who_joins_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    old = [member("gateway", 0, knows(1))]
    unsettled = (("PreparingRebalance", old), ("CompletingRebalance", []))
    told = brokers_say(monkeypatch, *unsettled, ("Stable", [member("gateway", 1, knows(1, 2))]))
    assert await members.attendants("b", "g") == {"gateway": Attendant(frozenset({1, 2}))}
    assert told == ["PreparingRebalance", "CompletingRebalance", "Stable"]


async def test_a_group_that_does_not_settle_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers_say(monkeypatch, ("PreparingRebalance", []))
    monkeypatch.setattr(members, "_DEADLINE_S", 0.0)
    with pytest.raises(LogUnreachable, match="PreparingRebalance"):
        await members.attendants("b", "g")
