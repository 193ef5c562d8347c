"""A gateway is seen for as long as it runs, and says so where it is not."""

import asyncio
from collections.abc import Collection
from typing import Any, cast

import pytest

from aetheris.gateway.attendance import GROUP, Attendance
from aetheris.runtime.kafka.topics import BrokerRefused
from aetheris.runtime.log.interface import LogUnreachable, MembershipLost
from aetheris.testkit.memory import MemoryLog, MemoryMembership
from tests.testkit.archives import HastyClock


class LossyMembership:
    """Fails to join as often as it is told to, then is lost when it is told so."""

    def __init__(self, of: MemoryMembership, log: "LossyLog") -> None:
        self._of = of
        self._log = log

    async def start(self, assigned: Any, revoked: Any) -> None:
        self._log.tries += 1
        if self._log.refusals:
            raise self._log.refusals.pop()
        await self._of.start(assigned, revoked)

    async def keep(self) -> None:
        await self._log.lost.wait()
        raise MembershipLost("another generation")

    async def stop(self) -> None:
        await self._of.stop()


class LossyLog:
    """A log in memory."""

    def __init__(self, refusals: Collection[Exception] = ()) -> None:
        self.log = MemoryLog(1)
        self.refusals = list(refusals)
        self.lost = asyncio.Event()
        self.tries = 0

    def attendance(self, group: str, name: str, topic: str) -> LossyMembership:
        return LossyMembership(self.log.attendance(group, name, topic), self)

    async def seen(self) -> Collection[str]:
        return (await self.log.attendants(GROUP)).keys()


async def turns(log: LossyLog, tries: int) -> None:
    async with asyncio.timeout(10):
        while log.tries < tries:  # noqa: ASYNC110  it rings no bell
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_it_is_seen_while_it_runs_and_gone_when_it_ends() -> None:
    log = LossyLog()
    attendance = Attendance(cast("Any", log), "gateway-0", HastyClock())
    running = asyncio.create_task(attendance.run())
    await turns(log, 1)
    assert (list(await log.seen()), attendance.unready()) == (["gateway-0"], None)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not await log.seen()


async def test_it_joins_again_and_is_not_ready_meanwhile() -> None:
    log = LossyLog([BrokerRefused("no Read on the group"), LogUnreachable("no broker")])
    states: list[str | None] = []
    attendance = Attendance(cast("Any", log), "gateway-0", HastyClock())
    joined = attendance._joined

    async def spied(partitions: frozenset[int]) -> None:
        states.append(attendance.unready())
        await joined(partitions)

    attendance._joined = spied  # pyright: ignore[reportAttributeAccessIssue]  what it said just before
    running = asyncio.create_task(attendance.run())
    await turns(log, 3)
    assert (states, attendance.unready(), list(await log.seen())) == (
        [f"is not seen in {GROUP}: no Read on the group"],
        None,
        ["gateway-0"],
    )
    log.lost.set()
    await turns(log, 5)
    assert f"is not seen in {GROUP}: another generation" in states
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
