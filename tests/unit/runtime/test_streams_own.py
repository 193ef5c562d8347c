"""What a process has appended itself counts as read where it lies right behind what was, and nowhere else."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aetheris.protocol.base.records import Draft, Record
from aetheris.runtime.log.interface import Place
from aetheris.runtime.log.pump import Pump
from aetheris.testkit.memory import MemoryLog

PLACE = ("t", 0)
A_LONG_PAUSE_S = 600.0
"""Longer than a test may take: what arrives sooner was not waited for."""


class Own:
    """A pump that hears of what is appended here, and another process that appends too."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.log.create("t", 1)
        self.appender, self.other = self.log.appender(), self.log.appender()
        self.pump = Pump(self.log, self._take, A_LONG_PAUSE_S, own=True)
        self.read: list[int] = []
        self._arrived = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Own"]:
        await asyncio.gather(self.appender.start(), self.other.start())
        self.appender.report(self.pump.written)
        self.pump.add({PLACE: 0})
        running = asyncio.create_task(self.pump.run())
        try:
            await self.elsewhere(b"first")
            await self.until(1)  # and now it pauses
            yield self
        finally:
            running.cancel()
            await asyncio.wait({running})

    async def here(self, *values: bytes) -> None:
        await self.appender.append([tuple(Draft("t", b"k", value) for value in values)])

    async def elsewhere(self, value: bytes) -> None:
        await self.other.append([(Draft("t", b"k", value),)])

    async def until(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.read) < count:
                self._arrived.clear()
                await self._arrived.wait()

    def _take(self, _place: Place, records: list[Record]) -> None:
        self.read += [record.offset for record in records]
        self._arrived.set()


async def test_it_is_delivered_before_its_append_returns() -> None:
    async with Own().running() as own:
        await own.here(b"a", b"b")
        assert own.read == [0, 1, 2]
        await own.here(b"c")
        assert own.read == [0, 1, 2, 3]


async def test_what_others_appended_before_it_is_read_first_and_at_once() -> None:
    async with Own().running() as own:
        await own.elsewhere(b"theirs")
        await own.here(b"a", b"b")
        assert own.read == [0]
        await own.until(4)
        assert own.read == [0, 1, 2, 3]
        await own.here(b"c")
        assert own.read == [0, 1, 2, 3, 4]


async def test_what_others_append_waits_for_the_pause() -> None:
    async with Own().running() as own:
        await own.elsewhere(b"theirs")
        assert not (await asyncio.wait({asyncio.create_task(own.until(2))}, timeout=0.3))[0]
        assert own.read == [0]


async def test_a_write_that_was_repeated_is_delivered_twice_and_in_order() -> None:
    async with Own().running() as own:
        own.log.faults.lost_acks = 1  # the first copy lies before the one that is heard of
        await own.here(b"a")
        await own.until(3)
        assert own.read == [0, 1, 2]


async def test_what_is_held_or_gone_is_not_delivered() -> None:
    async with Own().running() as own:
        own.pump.hold([PLACE])
        await own.here(b"a")
        assert own.read == [0]
        own.pump.release([PLACE])
        await own.here(b"b")
        await own.until(3)
        assert own.read == [0, 1, 2]
        own.pump.remove([PLACE])
        await own.here(b"c")
        assert own.read == [0, 1, 2]
