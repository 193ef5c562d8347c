"""A job that waits pins nothing: a restart reads it from its checkpoint, and the log from the mark; on both logs."""

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import pytest

from aetheris.cli.embedded.kafka import broker_in, install, running_broker
from aetheris.cli.embedded.ports import Ports
from aetheris.protocol.base.checkpoints import TYPE, CheckpointSpan
from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.log.interface import Appender, Log, LogGap
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.replay import replay
from aetheris.runtime.worker.checkpoints import UNSIGNED_PIECES, PieceSignatures
from aetheris.runtime.worker.loop import Inputs, Pace, PartitionHandler, PartitionWorker
from aetheris.testkit.memory import MemoryAppender, MemoryLog

DEADLINE_S = 60.0
PARTITIONS = 4
NUMBER = 2
EVERY = 50
PACE = Pace(lazy_pause_s=0.01, commit_interval_s=0.02, drain_s=3.0)
EVENTS = (str(Topic.JOBS_EVENTS), NUMBER)
PIECES = (str(Topic.LEDGER_CHECKPOINTS), NUMBER)
WRITES = Inputs(checkpoints=Topic.LEDGER_CHECKPOINTS, checkpoint_every=EVERY)
READS = Inputs(checkpoints=Topic.LEDGER_CHECKPOINTS)


def head(kind: str) -> tuple[tuple[str, bytes], ...]:
    return (("ce_id", uuid.uuid4().hex.encode()), ("ce_type", f"io.aetheris.{kind}.v1".encode()))


class LiveJobs(PartitionHandler):
    """Knows every record of its live jobs."""

    def __init__(self) -> None:
        self.jobs: dict[bytes, list[Record]] = {}
        self.folded = 0
        self.told: list[tuple[str, str, int]] = []
        self.begun: list[int] = []
        self.is_restored = asyncio.Event()

    def fold(self, records: Sequence[Record]) -> None:
        self.folded += len(records)
        for record in records:
            kind = (
                (record.header("ce_type") or b"")
                .removeprefix(b"io.aetheris.")
                .removesuffix(b".v1")
                .decode(errors="replace")
            )
            key = record.key or b""
            if kind == "job_created":
                self.jobs.setdefault(key, [])
            if key in self.jobs:
                self.jobs[key].append(record)
            if kind == "job_sealed":
                self.jobs.pop(key, None)

    def begin(self, start: int, live: Collection[tuple[str, int]] = ()) -> None:  # noqa: ARG002  of no concern here
        self.begun.append(start)

    async def restored(self) -> None:
        self.is_restored.set()

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        assert batch.keys() <= {EVENTS[0]}
        self.fold(batch.get(EVENTS[0], ()))

    def live(self) -> Iterable[tuple[str, int]]:
        return [(key.decode(), records[0].offset) for key, records in self.jobs.items()]

    def checkpointed(self, job_id: str, state_hash: str, as_of: int) -> Group:
        self.told.append((job_id, state_hash, as_of))
        return (Draft(EVENTS[0], job_id.encode(), b"{}", head("state_checkpointed")),)


@dataclass
class CheckpointBench:
    log: Log
    appender: Appender
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    names: int = 0

    def job(self) -> bytes:
        """A new job's name, in the partition of the test."""
        while True:
            self.names += 1
            name = f"{self.prefix}-{self.names}"
            if partition_of(name, PARTITIONS) == NUMBER:
                return name.encode()

    async def say(self, job: bytes, *kinds: str, value: bytes = b"{}") -> None:
        await self.appender.append([(Draft(EVENTS[0], job, value, head(kind)),) for kind in kinds])

    async def others(self, records: int) -> None:
        """LiveJobs that are born, go on, and are sealed, so many records of them."""
        groups: list[Group] = []
        for _ in range(records // 4):
            job = self.job()
            kinds = ("job_created", "plan_generated", "job_completed", "job_sealed")
            groups.append(tuple(Draft(EVENTS[0], job, b"{}", head(kind)) for kind in kinds))
        await self.appender.append(groups)

    async def end(self, place: tuple[str, int] = EVENTS) -> int:
        return (await self.log.end_offsets([place]))[place]

    async def all_of(self, job: bytes) -> list[Record]:
        begin = (await self.log.beginning_offsets([EVENTS]))[EVENTS]
        return [one async for got in replay(self.log, EVENTS, begin, await self.end()) for one in got if one.key == job]

    async def pieces(self) -> dict[bytes, Record]:
        """As compaction would leave the topic."""
        found: dict[bytes, Record] = {}
        begin = (await self.log.beginning_offsets([PIECES]))[PIECES]
        async for got in replay(self.log, PIECES, begin, await self.end(PIECES)):
            for one in got:
                found[one.key or b""] = one
        return {key: one for key, one in found.items() if one.value and key.startswith(self.prefix.encode())}

    async def no_pieces(self) -> None:
        """Return once all are deleted."""
        async with asyncio.timeout(DEADLINE_S):
            while await self.pieces():  # noqa: ASYNC110 - what a broker holds has no event
                await asyncio.sleep(0.05)

    async def put(self, span: CheckpointSpan, value: bytes) -> None:
        await self.appender.append([(Draft(PIECES[0], span.key, value, (("ce_type", TYPE),), NUMBER),)])

    async def committed(self, group: str) -> int:
        """The group's mark."""
        member = self.log.membership(group, "looks", WRITES.topics)
        assigned = asyncio.Event()

        async def taken(_numbers: frozenset[int]) -> None:
            assigned.set()

        await member.start(taken, taken)
        async with asyncio.timeout(DEADLINE_S):
            await assigned.wait()
        found = await member.committed([EVENTS])
        await member.stop()
        return found[EVENTS] or 0


@dataclass
class RunningHandler:
    handler: LiveJobs
    task: "asyncio.Task[None]"
    stop: asyncio.Event

    async def until(self, condition) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(0.005)

    async def end(self) -> None:
        self.stop.set()
        async with asyncio.timeout(DEADLINE_S):
            await self.task


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own: jobs that others left alive in the shared log would hold these marks."""
    data = tmp_path_factory.mktemp("kafka")
    broker = broker_in(install(lambda _part, _message: None), data, Ports(data))
    with running_broker(broker, data / "kafka.log") as address:
        yield address


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.real)])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[CheckpointBench]:
    if request.param == "memory":
        log: Log = MemoryLog(PARTITIONS)
    else:
        address = request.getfixturevalue("kafka")
        await ensure_topics(address, PARTITIONS)
        log = KafkaLog(address, session_timeout_s=6.0)
    await log.start()
    appender = log.appender()
    await appender.start()
    yield CheckpointBench(log, appender)
    await appender.stop()
    await log.stop()


@contextlib.asynccontextmanager
async def running(
    bench: CheckpointBench,
    group: str = "writes",
    inputs: Inputs = WRITES,
    appender: Appender | None = None,
    pieces: PieceSignatures = UNSIGNED_PIECES,
) -> AsyncGenerator[RunningHandler]:
    handlers = {number: LiveJobs() for number in range(PARTITIONS)}
    own = bench.log.appender() if appender is None else appender
    await own.start()
    worker = PartitionWorker(
        bench.log,
        own,
        inputs,
        handlers.__getitem__,
        group=f"{bench.prefix}-{group}",
        member="m",
        pace=PACE,
        pieces=pieces,
    )
    stop = asyncio.Event()
    run = RunningHandler(handlers[NUMBER], asyncio.create_task(worker.run(stop)), stop)
    try:
        await run.until(run.handler.is_restored.is_set)
        yield run
    finally:
        stop.set()
        await asyncio.wait({run.task}, timeout=DEADLINE_S)
        await own.stop()


async def left_behind(bench: CheckpointBench, run: RunningHandler, *kinds: str) -> bytes:
    """A job that waits, behind which the log goes on until its checkpoint is told."""
    old = bench.job()
    await bench.say(old, "job_created", "plan_generated", *kinds)
    while not [one for one in run.handler.told if one[0] == old.decode()]:
        await bench.others(EVERY)
        await asyncio.sleep(0.05)
    return old


async def grown(bench: CheckpointBench, run: RunningHandler, pieces: int = 2) -> None:
    """The log goes on until so many more pieces, and deletions of such, were written."""
    end = await bench.end(PIECES) + pieces
    while await bench.end(PIECES) < end:
        await bench.others(EVERY)
        await asyncio.sleep(0.05)
    assert not run.task.done()


async def test_a_job_that_waits_pins_nothing(bench: CheckpointBench) -> None:
    async with running(bench) as run:
        old = await left_behind(bench, run, "job_waiting")
        creation_offset = (await bench.all_of(old))[0].offset
        await grown(bench, run, 4)
        await run.end()
    mark = await bench.committed(f"{bench.prefix}-writes")
    assert mark > creation_offset + EVERY
    async with running(bench) as run:
        whole = await bench.all_of(old)
        assert run.handler.jobs[old] == whole, "byte for byte, at its own offsets"
        below = sum(one.offset < mark for one in whole)
        assert run.handler.begun[0] >= mark
        assert run.handler.folded <= await bench.end() - mark + below, "of others, only what lies behind the mark"
        await bench.say(old, "wait_completed")
        await run.until(lambda: len(run.handler.jobs[old]) == len(whole) + 1)
        await grown(bench, run, 4)
        await run.end()
    async with running(bench) as run:
        assert run.handler.jobs[old] == await bench.all_of(old), "and what came later"
        await bench.say(old, "job_completed", "job_sealed")
        await run.until(lambda: old not in run.handler.jobs)
        await bench.no_pieces()


async def test_short_jobs_have_no_checkpoint(bench: CheckpointBench) -> None:
    async with running(bench) as run:
        for _ in range(6):
            await bench.others(EVERY)
            await asyncio.sleep(0.05)
        await run.end()
    assert await bench.pieces() == {}


async def test_what_is_told_once_is_not_told_again(bench: CheckpointBench) -> None:
    async with running(bench) as run:
        old = await left_behind(bench, run)
        reported = len(run.handler.told)
        await grown(bench, run, 6)
        assert len(run.handler.told) == reported, (
            "of a job that waits, every stretch says only that there is nothing more"
        )
        spans = [CheckpointSpan.of(key) for key in await bench.pieces()]
        assert len([span for span in spans if span.job_id == old.decode()]) <= 4
        await run.end()


async def test_who_only_reads_rests_on_what_it_has_read_itself(bench: CheckpointBench) -> None:
    async with running(bench, "reads", READS) as reader:
        async with running(bench) as run:
            old = await left_behind(bench, run, "job_waiting")
            await grown(bench, run, 2)
            await run.end()
        await reader.until(lambda: len(reader.handler.jobs[old]) >= 3)
        await reader.end()
    async with running(bench, "reads", READS) as reader:
        assert reader.handler.jobs[old] == await bench.all_of(old)
        assert reader.handler.begun[0] > (await bench.all_of(old))[0].offset + EVERY


@pytest.mark.parametrize("harm", ["unreadable", "contradicted", "hidden", "a later version"])
async def test_a_checkpoint_that_is_no_good_is_as_if_there_were_none(bench: CheckpointBench, harm: str) -> None:
    async with running(bench) as run:
        old = await left_behind(bench, run, "job_waiting")
        await grown(bench, run, 4)
        await run.end()
    creation_offset = (await bench.all_of(old))[0].offset
    pieces = {CheckpointSpan.of(key): one for key, one in (await bench.pieces()).items()}
    for span, one in pieces.items():
        if harm == "unreadable":
            await bench.put(span, one.value[:-5])
        elif harm == "a later version":
            headers = (("ce_type", b"io.aetheris.checkpoint.v2"),)
            await bench.appender.append([(Draft(PIECES[0], span.key, one.value, headers, NUMBER),)])
    first = next(span for span in pieces if span.is_first)
    if harm == "contradicted":
        lie = pieces[first].value[32:64][::-1]
        await bench.put(CheckpointSpan(first.job_id, creation_offset, first.as_of, first.as_of + 1), lie + lie)
    elif harm == "hidden":
        await bench.put(first, b"")
    async with running(bench) as run:
        assert run.handler.jobs[old] == await bench.all_of(old)
        assert run.handler.begun[0] <= creation_offset
        await run.end()


async def test_where_neither_checkpoint_nor_log_has_the_birth_nobody_starts() -> None:
    log = MemoryLog(PARTITIONS)
    appender = log.appender()
    await appender.start()
    bench = CheckpointBench(log, appender)
    async with running(bench) as run:
        old = await left_behind(bench, run, "job_waiting")
        await grown(bench, run, 4)
        await run.end()
    creation_offset = (await bench.all_of(old))[0].offset
    log.delete_below(EVENTS, creation_offset + 1)
    async with running(bench) as run:
        assert run.handler.jobs[old][0].offset == creation_offset, "what is gone from the log is in the checkpoint"
        await run.end()
    for key, one in (await bench.pieces()).items():
        await bench.put(CheckpointSpan.of(key), one.value[:-5])
    with pytest.raises(LogGap, match="is needed"):
        async with running(bench):
            pass


async def test_a_topic_of_checkpoints_that_was_cut_short_is_noticed() -> None:
    log = MemoryLog(PARTITIONS)
    appender = log.appender()
    await appender.start()
    bench = CheckpointBench(log, appender)
    async with running(bench) as run:
        old = await left_behind(bench, run, "job_waiting")
        await grown(bench, run, 4)
        await run.end()
    log.lose(PIECES)
    async with running(bench) as run:
        assert run.handler.jobs[old] == await bench.all_of(old)
        assert run.handler.begun == [0]
        await run.end()


async def test_a_job_with_a_record_that_fits_no_piece_keeps_its_mark() -> None:
    log = MemoryLog(PARTITIONS)
    appender = log.appender()
    await appender.start()
    bench = CheckpointBench(log, appender)
    async with running(bench) as run:
        huge = bench.job()
        noise = random.Random(1).randbytes(899_000)  # noqa: S311 - a seeded test
        await bench.say(huge, "job_created")
        await bench.say(huge, "plan_generated", value=noise)
        other = await left_behind(bench, run, "job_waiting")
        await grown(bench, run, 4)
        await run.end()
    async with running(bench) as run:
        assert run.handler.jobs.keys() == {huge, other}
        assert run.handler.jobs[huge] == await bench.all_of(huge)


class Dying(MemoryAppender):
    """Its process is gone after so many pieces."""

    def __init__(self, log: MemoryLog, after: int) -> None:
        super().__init__(log)
        self._left = after

    async def append(self, groups: Sequence[Group]) -> None:
        for group in groups:
            if group[0].topic == PIECES[0]:
                if self._left == 0:
                    raise ConnectionAbortedError
                self._left -= 1
            await super().append([group])


@pytest.mark.parametrize("after", range(8))
async def test_whoever_dies_while_checkpoints_are_written_leaves_no_false_one(after: int) -> None:
    log = MemoryLog(PARTITIONS)
    appender = log.appender()
    await appender.start()
    bench = CheckpointBench(log, appender)
    old = [bench.job() for _ in range(3)]
    for job in old:
        await bench.say(job, "job_created", "plan_generated", "job_waiting")
    await bench.others(2 * EVERY)
    async with running(bench, appender=Dying(log, after)) as run:
        for step in count():
            await bench.say(old[step % 3], "signal_received")
            await bench.others(EVERY)
            await asyncio.sleep(0.02)
            if run.task.done():
                break
        assert isinstance(run.task.exception(), ConnectionAbortedError)
    for group in ("writes", "another"):
        async with running(bench, group) as run:
            assert run.handler.jobs == {job: await bench.all_of(job) for job in old}
            await run.end()
