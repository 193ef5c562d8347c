"""A partition that takes longer to restore holds up no other."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count

import pytest

from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.log.interface import Place
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.pump import Pump
from aetheris.runtime.worker.handler import Inputs, PartitionHandler
from aetheris.runtime.worker.loop import PartitionWorker
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

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        inputs = Inputs(authority=Topic.JOBS_EVENTS)
        worker = PartitionWorker(self.log, self.appender, inputs, self.handlers.__getitem__, group="g", member="m")
        stop = asyncio.Event()
        await asyncio.gather(self.log.start(), self.appender.start())
        running = asyncio.create_task(worker.run(stop))
        try:
            yield
        finally:
            stop.set()
            await running

    async def reaches(self, number: int) -> None:
        """A record that is appended once the partition is read is handled there."""
        await asyncio.wait_for(self.read[number].wait(), 20)
        key = next(str(n).encode() for n in count() if partition_of(str(n), PARTITIONS) == number)
        await self.appender.append([(Draft(Topic.JOBS_EVENTS, key, b"{}"),)])
        await asyncio.wait_for(self.handlers[number].given.wait(), 20)


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> Fed:
    fed = Fed()
    add: Callable[[Pump, Mapping[Place, int]], None] = Pump.add

    def noted(pump: Pump, positions: Mapping[Place, int]) -> None:
        add(pump, positions)
        for _, number in positions:
            fed.read[number].set()

    monkeypatch.setattr(Pump, "add", noted)
    return fed


async def test_one_that_takes_longer_holds_up_no_other(fed: Fed) -> None:
    *quick, slow = range(PARTITIONS)
    for number in quick:
        fed.gates[number].set()
    async with fed.running():
        await asyncio.gather(*map(fed.reaches, quick))
        assert not fed.handlers[slow].given.is_set()
        fed.gates[slow].set()
        await fed.reaches(slow)
