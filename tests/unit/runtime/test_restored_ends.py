"""A partition is restored with all that its process had acknowledged there, whatever a broker takes for its end."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

import pytest

from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.log.interface import Place
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.worker import partition
from aetheris.runtime.worker.handler import Inputs, PartitionHandler
from aetheris.runtime.worker.loop import PartitionWorker
from aetheris.runtime.worker.reached import LogCut
from aetheris.testkit.memory import MemoryLog

PARTITIONS, MOVED = 2, 1
KEY = next(str(n).encode() for n in count() if partition_of(str(n), PARTITIONS) == MOVED)


class LyingLog(MemoryLog):
    """Its leaders are asleep now and then, and know nothing of what was written meanwhile."""

    def __init__(self) -> None:
        super().__init__(partitions=PARTITIONS)
        self.stale_answers = 0
        self.writes_while_asked = False
        self.ours = self.appender()

    async def put_one(self) -> None:
        await self.ours.append([(Draft(Topic.JOBS_EVENTS, KEY, b"{}"),)])

    async def end_offsets(self, places: Collection[Place], deadline_s: float = 10.0) -> dict[Place, int]:
        ends = await super().end_offsets(places, deadline_s)
        if self.stale_answers and {number for _, number in places} == {MOVED}:
            self.stale_answers -= 1
            return dict.fromkeys(ends, 0)
        return ends

    async def beginning_offsets(self, places: Collection[Place], deadline_s: float = 10.0) -> dict[Place, int]:
        """Asked after the end is."""
        if self.writes_while_asked and {number for _, number in places} == {MOVED}:
            self.writes_while_asked = False
            await self.put_one()
        return await super().beginning_offsets(places, deadline_s)


class Folding(PartitionHandler):
    """Knows what it had folded when it was restored."""

    def __init__(self) -> None:
        self.folded = 0
        self.is_restored: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def fold(self, records: Sequence[Record]) -> None:
        self.folded += len(records)

    async def restored(self) -> None:
        self.is_restored.set_result(self.folded)

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """It lives for what it has folded."""

    def live(self) -> list[tuple[str, int]]:
        return [("a job of the first record's", 0)]


@dataclass
class Moving:
    """A worker, and who handles its partition next."""

    worker: PartitionWorker
    handlers: "asyncio.Queue[Folding]"

    @property
    def taken(self) -> int:
        return self.worker.taken(MOVED)


@asynccontextmanager
async def moving(log: LyingLog) -> AsyncGenerator[Moving]:
    """A worker whose partition is taken away."""
    handlers = asyncio.Queue[Folding]()

    def factory(number: int) -> Folding:
        handler = Folding()
        if number == MOVED:
            handlers.put_nowait(handler)
        return handler

    worker = PartitionWorker(log, log.ours, Inputs(authority=Topic.JOBS_EVENTS), factory, group="g", member="m")
    stop = asyncio.Event()
    await asyncio.gather(log.start(), log.ours.start())
    running = asyncio.create_task(worker.run(stop))
    try:
        first = await asyncio.wait_for(handlers.get(), 20)
        await asyncio.wait_for(first.is_restored, 20)
        await log.put_one()
        await log.assign("g", {"m": {*range(PARTITIONS)} - {MOVED}})
        yield Moving(worker, handlers)
    finally:
        stop.set()
        await running


async def come_back(log: LyingLog, moved: Moving) -> int:
    """How many records it has folded when it is restored."""
    await log.assign("g", {"m": range(PARTITIONS)})
    return await asyncio.wait_for((await moved.handlers.get()).is_restored, 20)


@pytest.mark.parametrize("answers", [1, 3])
async def test_an_end_below_what_was_acknowledged_is_asked_for_again(answers: int) -> None:
    log = LyingLog()
    async with moving(log) as moved:
        log.stale_answers = answers
        assert await come_back(log, moved) == 1
        assert log.stale_answers == 0


async def test_what_is_acknowledged_after_the_end_was_asked_for_is_folded_too() -> None:
    """As the last words of a call that outlives its partition's first turn here."""
    log = LyingLog()
    async with moving(log) as moved:
        log.writes_while_asked = True
        assert await come_back(log, moved) == 2
        assert not log.writes_while_asked


async def test_what_the_log_has_lost_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it run on without it."""
    monkeypatch.setattr(partition, "GAP_BELIEVED_S", 0.01)
    log = LyingLog()

    async def lies() -> None:
        async with moving(log) as moved:
            log.stale_answers = 1_000_000
            await come_back(log, moved)

    with pytest.raises(LogCut, match="ends at 0; it was read to 0"):
        await lies()


async def test_what_the_brokers_have_lost_is_not_said_to_be_taken() -> None:
    """Or births that name it would be written in vain, one behind the other."""
    log = LyingLog()
    async with moving(log) as moved:
        assert await come_back(log, moved) == 1
        for taken in (1, 2):
            await log.put_one()
            assert moved.taken == taken
        log.silence_readers()  # or it ends over that at once
        log.lose((str(Topic.JOBS_EVENTS), MOVED))
        for taken in (0, 1):
            await log.put_one()
            assert moved.taken == taken
