"""Whose brokers the log is on: the last signed word counts, and whoever else has written there changes nothing."""

import json

import pytest

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.log_homes import LOG_HOME_KEY, LogHome
from aetheris.protocol.tables.log_homes import LogHomes, why_moved
from aetheris.runtime.log.log_home import LogHomeTable, LogMoved
from aetheris.runtime.log.table import Table
from aetheris.testkit.memory import MemoryLog

OURS, OTHERS = "cluster-a", "cluster-b"


class OnBrokers(MemoryLog):
    """On brokers of this name."""

    name: str | None = OURS

    async def cluster_id(self) -> str | None:
        return self.name


def line(number: int, cluster: str) -> bytes:
    return LogHome(number=number, cluster=cluster, at="2026-01-01T00:00:00Z").model_dump_json().encode()


def heard(log: MemoryLog, *lines: bytes, key: str = LOG_HOME_KEY, signs: bool = True) -> LogHomeTable:
    table = Table(log, Topic.POLICIES)
    home = LogHomeTable(table, lambda _topic, _name, _key, _value: signs)
    for one in lines:
        for listener in table._listeners:
            listener(key, one)
    return home


@pytest.mark.parametrize("lines", [(), (b"{}", b"\xff", json.dumps({"number": 0, "cluster": OTHERS}).encode())])
async def test_where_nothing_is_said_any_brokers_are_taken(lines: tuple[bytes, ...]) -> None:
    await heard(OnBrokers(), *lines).check(OnBrokers())


async def test_other_brokers_are_refused_and_their_names_told() -> None:
    log = OnBrokers()
    await heard(log, line(1, OURS)).check(log)
    with pytest.raises(LogMoved, match=f"{OTHERS}, and these brokers are {OURS}"):
        await heard(log, line(1, OURS), line(2, OTHERS)).check(log)
    log.name = None
    await heard(log, line(1, OTHERS)).check(log)  # who has no name is not told apart


async def test_what_was_said_before_does_not_come_back_and_nobody_else_is_heard() -> None:
    log = OnBrokers()
    await heard(log, line(1, OTHERS), line(2, OURS), line(1, OTHERS), line(2, OTHERS)).check(log)
    await heard(log, line(9, OTHERS), signs=False).check(log)
    await heard(log, line(9, OTHERS), key="policy").check(log)


def test_the_next_word_is_numbered() -> None:
    homes = LogHomes()
    first = homes.next(OURS, "2026-01-01T00:00:00Z")
    assert homes.hear(first)
    assert not homes.hear(first)
    assert (first.number, homes.next(OTHERS, "2026-01-02T00:00:00Z").number) == (1, 2)
    assert why_moved(None, OTHERS) is None
    assert why_moved(first, OTHERS) is not None
