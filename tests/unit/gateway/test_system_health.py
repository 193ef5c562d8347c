"""How the system stands, put together of what the log says: what can't be known hides nothing else."""

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from aetheris.gateway.core.system_health import Group, GroupSaid, backlogs, groups
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.log_watch import LogWatch
from aetheris.gateway.registry import Registry
from aetheris.gateway.system_health import KEPT_S, SystemHealth
from aetheris.gateway.workers import WorkerDirectory
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.protocol.messages.registry_lines import ExecutorTools
from aetheris.protocol.tables.attendants import Attendant
from aetheris.runtime.log.interface import LogUnreachable, Place
from aetheris.testkit.clock import VirtualClock
from aetheris.testkit.memory import MemoryLog

PARTITIONS = 2


class RegisteredExecutors:
    """Who is registered, and lives."""

    def pools(self) -> list[str]:
        return ["main", "gpu"]

    def executors(self) -> dict[str, ExecutorTools]:
        return {}

    def names(self) -> list[Any]:
        return []


class BrokenLog(MemoryLog):
    """Of some groups nobody can say who is there; others never answer."""

    unsettled: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    asked = 0

    async def attendants(self, group: str) -> dict[str, Attendant]:
        self.asked += 1
        if group in self.unsettled:
            raise LogUnreachable(f"who is in {group} is not known: PreparingRebalance")
        if group in self.silent:
            await asyncio.Event().wait()
        return await super().attendants(group)


class Patience:
    """Deadlines without an end."""

    request_s = 0.2

    @asynccontextmanager
    async def deadline(self) -> AsyncGenerator[None]:
        yield


def health_of(log: MemoryLog, clock: VirtualClock) -> SystemHealth:
    known = RegisteredExecutors()
    return SystemHealth(
        log,
        cast("Registry", known),
        cast("WorkerDirectory", known),
        log_watch=LogWatch(log, known.pools, clock),
        deadlines=cast("Deadlines", Patience()),
        clock=clock,
    )


async def written(log: MemoryLog, topic: str, count: int) -> None:
    appender = log.appender()
    await appender.start()
    for number in range(count):
        await appender.append([(Draft(topic, b"k", b"%d" % number, (), 0),)])


async def test_what_waits_is_what_lies_behind_the_commit_and_one_bad_group_hides_no_other() -> None:
    log, clock = BrokenLog(PARTITIONS), VirtualClock()
    log.unsettled, log.silent = frozenset({"aetheris.verifier"}), frozenset({"aetheris.prober"})
    await written(log, Topic.TOOLS_REQUESTS, 5)
    await written(log, dead_letters(Topic.TOOLS_GRANTS), 3)
    member = log.membership("aetheris.ledger", "ledger-0", (Topic.TOOLS_REQUESTS,))
    await member.start(_nothing, _nothing)
    await member.commit({(str(Topic.TOOLS_REQUESTS), 0): 2})
    found = await health_of(log, clock).view()
    services = {one.service: one for one in found.services}
    assert [one.name for one in services["ledger"].processes] == ["ledger-0"]
    assert "PreparingRebalance" in (services["verifier"].unknown or "")
    assert "somebody joins" in (services["prober"].unknown or "")
    assert "tool_executor.gpu" in services
    lines = {(one.service, one.topic): one for one in found.backlogs}
    assert (lines["ledger", Topic.TOOLS_REQUESTS].records, lines["ledger", Topic.TOOLS_REQUESTS].partitions) == (3, 1)
    assert not [service for service, _ in lines if service in ("verifier", "prober")]
    assert [(one.topic, one.records) for one in found.dead_letters] == [(dead_letters(Topic.TOOLS_GRANTS), 3)]


async def test_however_many_ask_the_brokers_are_asked_once() -> None:
    log, clock = BrokenLog(PARTITIONS), VirtualClock()
    health = health_of(log, clock)
    first, *others = await asyncio.gather(*(health.view() for _ in range(20)))
    assert all(one is first for one in others)
    once = log.asked
    assert once == len(groups(["main", "gpu"]))
    await clock.advance(KEPT_S + 1)
    await health.view()
    assert log.asked == 2 * once


@pytest.mark.parametrize(("committed", "waits"), [(None, 7), (3, 7), (9, 3), (12, 0), (40, 0)])
def test_a_backlog_counts_what_is_there_only(committed: int | None, waits: int) -> None:
    place: Place = (str(Topic.VERIFICATIONS), 0)
    said = GroupSaid(committed={} if committed is None else {place: committed})
    (line,) = backlogs(Group("prober"), said, {place: 5}, {place: 12})
    assert (line.records, line.partitions) == (waits, int(waits > 0))


async def _nothing(_partitions: Collection[int]) -> None:
    await asyncio.sleep(0)
