"""Who restarts reads some records below his mark once more, and takes no gap there for an end."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

import pytest

from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.log.interface import LogGap
from aetheris.runtime.worker import partition
from aetheris.runtime.worker.handler import Inputs, PartitionHandler
from aetheris.runtime.worker.loop import PartitionWorker
from aetheris.testkit.memory import MemoryLog

PLACE = (str(Topic.JOBS_EVENTS), 0)


class FromBelowItsMark(PartitionHandler):
    """Where it was told that it begins, and what it has folded when it is restored."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.begun = -1
        self.is_restored: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

    def fold(self, records: Sequence[Record]) -> None:
        self.offsets += [record.offset for record in records]

    def begin(self, start: int, live: Collection[tuple[str, int]] = ()) -> None:  # noqa: ARG002  no job has pieces
        self.begun = start

    async def restored(self) -> None:
        self.is_restored.set_result(self.offsets)

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """Nothing comes."""

    def live(self) -> list[tuple[str, int]]:
        return []


async def lives(log: MemoryLog, reach: int) -> FromBelowItsMark:
    """A worker's life, up to its restart's end; it commits, and leaves."""
    handler = FromBelowItsMark()
    appender = log.appender()
    worker = PartitionWorker(log, appender, Inputs(reach=reach), lambda _: handler, group="g", member="m")
    stop = asyncio.Event()
    await asyncio.gather(log.start(), appender.start())
    running = asyncio.create_task(worker.run(stop))
    try:
        await asyncio.wait({running, handler.is_restored}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.set()
        await running
    return handler


async def log_of(records: int) -> MemoryLog:
    log = MemoryLog(partitions=1)
    await log.start()
    await more(log, records)
    return log


async def more(log: MemoryLog, records: int) -> None:
    appender = log.appender()
    await appender.start()
    await appender.append([tuple(Draft(Topic.JOBS_EVENTS, b"k", b"{}") for _ in range(records))])


@pytest.mark.parametrize(("reach", "start"), [(0, 8), (3, 5), (20, 0)])
async def test_it_reads_from_within_reach_of_its_mark(reach: int, start: int) -> None:
    log = await log_of(8)
    assert (await lives(log, reach)).offsets == [*range(8)]
    again = await lives(log, reach)
    assert (again.offsets, again.begun) == ([*range(start, 8)], start)


async def test_what_is_missing_within_reach_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or jobs that lay there could come again."""
    monkeypatch.setattr(partition, "GAP_BELIEVED_S", 0.0)
    log = await log_of(8)
    await lives(log, 3)
    log.delete_below(PLACE, 5)
    assert (await lives(log, 3)).offsets == [5, 6, 7]
    log.delete_below(PLACE, 6)
    with pytest.raises(LogGap):
        await lives(log, 3)


async def test_a_log_that_was_cut_at_its_mark_is_begun_there_as_often_as_it_takes() -> None:
    """What is deleted below every mark is asked for by nobody."""
    log = await log_of(8)
    await lives(log, 3)
    log.delete_below(PLACE, 5)
    for _ in range(2):
        again = await lives(log, 3)
        assert (again.offsets, again.begun) == ([5, 6, 7], 5)


async def test_who_began_at_a_cut_begins_there_until_its_mark_is_as_far_behind() -> None:
    """Up to there nobody knows what lay below: births of whoever had read less count for none, at each restart."""
    log = await log_of(8)
    log.delete_below(PLACE, 6)
    for begin, written in ((6, 2), (6, 1), (7, 1), (8, 1)):
        handler = await lives(log, 3)
        assert handler.begun == begin
        await more(log, written)
