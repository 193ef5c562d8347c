"""A partition that takes longer to restore holds up no other."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count

import pytest

from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.log.interface import Place
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.pump import Pump
from aetheris.runtime.worker.handler import Inputs, PartitionHandler
from aetheris.runtime.worker.loop import Pace, PartitionWorker
from aetheris.testkit.memory import MemoryLog

PARTITIONS = 4


class Reading(PartitionHandler):
    """Is restored once it may be, and says what it was given."""

    def __init__(self, may_begin: asyncio.Event) -> None:
        self.may_begin = may_begin
        self.given = asyncio.Event()

    def fold(self, records: Sequence[Record]) -> None:
        """Nothing lies there."""

    async def restored(self) -> None:
        await self.may_begin.wait()

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        if batch:
            self.given.set()

    def live(self) -> list[tuple[str, int]]:
        return []


class Fed:
    """A worker on a log in memory, and which of its partitions are being read."""

    def __init__(self) -> None:
        self.log = MemoryLog(partitions=PARTITIONS)
        self.appender = self.log.appender()
        self.gates = [asyncio.Event() for _ in range(PARTITIONS)]
        self.handlers = [Reading(gate) for gate in self.gates]
        self.read = [asyncio.Event() for _ in range(PARTITIONS)]
        self.removed = asyncio.Event()

    def worker(self) -> PartitionWorker:
        inputs = Inputs(authority=Topic.JOBS_EVENTS)
        return PartitionWorker(self.log, self.appender, inputs, self.handlers.__getitem__, group="g", member="m")

    @asynccontextmanager
    async def running(self, worker: PartitionWorker) -> AsyncGenerator[None]:
        stop = asyncio.Event()
        await asyncio.gather(self.log.start(), self.appender.start())
        running = asyncio.create_task(worker.run(stop))
        try:
            yield
        finally:
            stop.set()
            await running

    async def append(self, number: int) -> None:
        key = next(str(n).encode() for n in count() if partition_of(str(n), PARTITIONS) == number)
        await self.appender.append([(Draft(Topic.JOBS_EVENTS, key, b"{}"),)])

    async def reaches(self, number: int) -> None:
        """A record that is appended once the partition is read is handled there."""
        await asyncio.wait_for(self.read[number].wait(), 20)
        await self.append(number)
        await asyncio.wait_for(self.handlers[number].given.wait(), 20)


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> Fed:
    fed = Fed()
    add: Callable[[Pump, Mapping[Place, int]], None] = Pump.add

    def noted(pump: Pump, positions: Mapping[Place, int]) -> None:
        add(pump, positions)
        for _, number in positions:
            fed.read[number].set()

    def gone(pump: Pump, places: Collection[Place]) -> None:
        remove(pump, places)
        fed.removed.set()

    remove: Callable[[Pump, Collection[Place]], None] = Pump.remove
    monkeypatch.setattr(Pump, "add", noted)
    monkeypatch.setattr(Pump, "remove", gone)
    return fed


async def test_one_that_takes_longer_holds_up_no_other(fed: Fed) -> None:
    *quick, slow = range(PARTITIONS)
    for number in quick:
        fed.gates[number].set()
    async with fed.running(fed.worker()):
        await asyncio.gather(*map(fed.reaches, quick))
        assert not fed.handlers[slow].given.is_set()
        fed.gates[slow].set()
        await fed.reaches(slow)


class CountingReading(Reading):
    """Knows the offsets of all that it was given, before it was restored and after."""

    def __init__(self, may_begin: asyncio.Event) -> None:
        super().__init__(may_begin)
        self.offsets: list[int] = []
        self.begins = asyncio.Event()

    def fold(self, records: Sequence[Record]) -> None:
        self.offsets += (record.offset for record in records)

    async def restored(self) -> None:
        self.begins.set()
        await super().restored()

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        for records in batch.values():
            self.fold(records)
        await super().handle(batch)


@pytest.mark.parametrize("is_cut_off", [False, True])
async def test_one_that_comes_back_is_given_nothing_twice(fed: Fed, is_cut_off: bool) -> None:
    """Revoked before it was restored, as where brokers are away: what it was to be fed its successor reads."""
    moved, other = 0, 1
    first, second = CountingReading(asyncio.Event()), CountingReading(asyncio.Event())
    lives = iter((first, second))
    for gate in fed.gates:
        gate.set()
    inputs = Inputs(authority=Topic.JOBS_EVENTS)
    pace = Pace(drain_s=0.05 if is_cut_off else 20)
    worker = PartitionWorker(
        fed.log,
        fed.appender,
        inputs,
        lambda number: next(lives) if number == moved else fed.handlers[number],
        group="g",
        member="m",
        pace=pace,
    )
    async with fed.running(worker):
        await asyncio.wait_for(first.begins.wait(), 20)
        await fed.append(moved)
        everything = range(PARTITIONS)
        revoking = asyncio.create_task(fed.log.assign("g", {"m": set(everything) - {moved}}))
        await asyncio.wait_for(fed.removed.wait(), 20)
        if not is_cut_off:
            first.may_begin.set()
        await revoking
        await fed.log.assign("g", {"m": everything})
        await asyncio.wait_for(second.begins.wait(), 20)
        await fed.reaches(other)  # by the reader that would bring what is not wanted
        second.may_begin.set()
        await asyncio.wait_for(fed.read[moved].wait(), 20)
        await fed.append(moved)
        await asyncio.wait_for(second.given.wait(), 20)
        assert second.offsets == [0, 1]
