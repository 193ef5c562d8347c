"""The partition worker: restore, feed, commit, revoke, quarantine, crash; on both logs."""

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.log.interface import Appender, Log, LogGap
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.replay import replay
from aetheris.runtime.worker.loop import Cadence, Inputs, Pace, PartitionHandler, PartitionWorker
from aetheris.testkit.memory import MemoryLog

DEADLINE_S = 60.0
PARTITIONS = 4
PACE = Pace(lazy_pause_s=0.01, commit_interval_s=0.1, drain_s=3.0, watchdog_s=0.2)
EVENTS = Topic.JOBS_EVENTS
REQUESTS = Topic.TOOLS_REQUESTS
INPUTS = Inputs(
    commands={REQUESTS: Cadence.EAGER},
    authority_cadence=Cadence.LAZY,
    tables=(Topic.WORKERS,),
    quarantines=frozenset({REQUESTS}),
)


@dataclass
class WorkerBench:
    log: Log
    appender: Appender
    prefix: str = field(default_factory=lambda: f"job-{uuid.uuid4().hex[:6]}-")

    @property
    def group(self) -> str:
        return f"group-{self.prefix}"

    def key(self, partition: int) -> bytes:
        """A job_id of this test in that partition."""
        names = (f"{self.prefix}{n}" for n in itertools.count())
        return next(name for name in names if partition_of(name, PARTITIONS) == partition).encode()

    async def put(self, topic: Topic, partition: int, *values: str) -> None:
        await self.appender.append([(Draft(topic, self.key(partition), value.encode()),) for value in values])


class SeenByPartition(PartitionHandler):
    """Notes what it is told about this test's jobs."""

    def __init__(self, bench: WorkerBench, partition: int) -> None:
        self.bench = bench
        self.partition = partition
        self.calls: list[tuple[str, list[str]]] = []
        self.changed = asyncio.Condition()
        self.is_restored = False
        self.closed = False
        self.ticks = 0
        self.needed: int | None = None
        self.open_command: int | None = None

    def _mine(self, records: Sequence[Record]) -> list[str]:
        return [r.value.decode() for r in records if (r.key or b"").startswith(self.bench.prefix.encode())]

    def fold(self, records: Sequence[Record]) -> None:
        if mine := self._mine(records):
            self.calls.append(("fold", mine))

    async def restored(self) -> None:
        self.is_restored = True
        await self._tell()

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        for topic, records in batch.items():
            if mine := self._mine(records):
                self.calls.append((topic, mine))
        await self._tell()

    async def tick(self) -> None:
        self.ticks += 1
        await self._tell()

    def live(self) -> Iterable[tuple[str, int]]:
        return [] if self.needed is None else [("job", self.needed)]

    def low_water(self, topic: str) -> int | None:
        return self.open_command if topic == REQUESTS else None

    async def close(self) -> None:
        self.closed = True

    def values(self, *kinds: str) -> list[str]:
        return [value for kind, values in self.calls if kind in kinds for value in values]

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def until(self, condition) -> None:
        async with asyncio.timeout(DEADLINE_S), self.changed:
            await self.changed.wait_for(condition)


@dataclass
class RunningWorker:
    worker: PartitionWorker
    handlers: dict[int, SeenByPartition]
    stop: asyncio.Event
    task: "asyncio.Task[None]"

    async def restored(self, *partitions: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not all(n in self.handlers and self.handlers[n].is_restored for n in partitions):
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        self.stop.set()
        async with asyncio.timeout(DEADLINE_S):
            await self.task


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.real)])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[WorkerBench]:
    log = await _log(request)
    await log.start()
    appender = log.appender()
    await appender.start()
    yield WorkerBench(log, appender)
    await appender.stop()
    await log.stop()


async def _log(request: pytest.FixtureRequest) -> Log:
    if request.param == "memory":
        return MemoryLog(PARTITIONS)
    address = request.getfixturevalue("kafka")
    await ensure_topics(address, PARTITIONS)
    return KafkaLog(address, session_timeout_s=6.0)


@contextlib.asynccontextmanager
async def running(
    bench: WorkerBench,
    member: str = "worker-0",
    inputs: Inputs = INPUTS,
    kind: type[SeenByPartition] = SeenByPartition,
    pace: Pace = PACE,
) -> AsyncGenerator[RunningWorker]:
    handlers: dict[int, SeenByPartition] = {}

    def factory(partition: int) -> SeenByPartition:
        handlers[partition] = kind(bench, partition)
        return handlers[partition]

    worker = PartitionWorker(bench.log, bench.appender, inputs, factory, group=bench.group, member=member, pace=pace)
    stop = asyncio.Event()
    run = RunningWorker(worker, handlers, stop, asyncio.create_task(worker.run(stop)))
    try:
        yield run
    finally:
        stop.set()
        await asyncio.wait({run.task}, timeout=DEADLINE_S)


async def test_history_is_folded_before_commands_are_handled(bench: WorkerBench) -> None:
    await bench.put(EVENTS, 1, "e1", "e2")
    await bench.put(REQUESTS, 1, "r1")
    async with running(bench) as run:
        await run.restored(0, 1, 2, 3)
        handler = run.handlers[1]
        await handler.until(lambda: handler.values(REQUESTS) == ["r1"])
        assert handler.calls[0][0] == "fold"
        assert handler.values("fold") == ["e1", "e2"]
        await bench.put(EVENTS, 1, "e3")
        await handler.until(lambda: handler.values(EVENTS) == ["e3"])
        assert run.worker.unready() is None
        await run.end()
        assert all(handler.closed for handler in run.handlers.values())


async def test_a_restart_goes_on_from_the_mark_and_the_low_water(bench: WorkerBench) -> None:
    await bench.put(EVENTS, 2, "e1")
    async with running(bench) as run:
        await run.restored(2)
        handler = run.handlers[2]
        handler.needed = (await bench.log.end_offsets([(EVENTS, 2)]))[EVENTS, 2]
        handler.open_command = (await bench.log.end_offsets([(REQUESTS, 2)]))[REQUESTS, 2] + 1
        await bench.put(EVENTS, 2, "e2", "e3")
        await bench.put(REQUESTS, 2, "r1", "r2")
        await handler.until(lambda: len(handler.values(EVENTS)) == 2 and len(handler.values(REQUESTS)) == 2)
        await run.end()
    async with running(bench) as run:
        await run.restored(2)
        handler = run.handlers[2]
        await handler.until(lambda: handler.values(REQUESTS) == ["r2"])
        assert handler.values("fold") == ["e2", "e3"]
        await run.end()


async def test_what_was_handled_and_is_not_needed_comes_no_more(bench: WorkerBench) -> None:
    async with running(bench) as run:
        await run.restored(0)
        await bench.put(EVENTS, 0, "e1")
        await bench.put(REQUESTS, 0, "r1")
        handler = run.handlers[0]
        await handler.until(lambda: handler.values(EVENTS, REQUESTS) != [] and len(handler.calls) == 2)
        await run.end()
    async with running(bench) as run:
        await run.restored(0)
        await bench.put(REQUESTS, 0, "r2")
        handler = run.handlers[0]
        await handler.until(lambda: handler.values(REQUESTS) == ["r2"])
        assert handler.values("fold", EVENTS) == []


async def test_partitions_move_and_are_restored_elsewhere(bench: WorkerBench) -> None:
    async with running(bench, "worker-0") as first:
        await first.restored(*range(PARTITIONS))
        await bench.put(EVENTS, 3, "e1")
        await first.handlers[3].until(lambda: first.handlers[3].values(EVENTS) == ["e1"])
        first.handlers[3].needed = 0
        async with running(bench, "worker-1") as second:
            if isinstance(bench.log, MemoryLog):
                await asyncio.sleep(0.05)
                await bench.log.assign(bench.group, {"worker-0": [0, 1], "worker-1": [2, 3]})
            await second.restored(2, 3)
            assert first.handlers[3].closed
            assert second.handlers[3].values("fold") == ["e1"]
            await bench.put(REQUESTS, 3, "r1")
            await second.handlers[3].until(lambda: second.handlers[3].values(REQUESTS) == ["r1"])
            assert first.handlers[3].values(REQUESTS) == []
            await bench.put(REQUESTS, 0, "r2")
            await first.restored(0, 1)
            await first.handlers[0].until(lambda: first.handlers[0].values(REQUESTS) == ["r2"])


class Undecoding(SeenByPartition):
    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        for records in batch.values():
            for record in records:
                if record.value == b"\xff":
                    self.worker.quarantine(record, "not valid JSON")
        await super().handle({topic: [r for r in rs if r.value != b"\xff"] for topic, rs in batch.items()})

    worker: PartitionWorker


async def test_what_cannot_be_decoded_goes_to_the_dlq_and_the_partition_goes_on(bench: WorkerBench) -> None:
    async with running(bench, kind=Undecoding) as run:
        Undecoding.worker = run.worker
        await run.restored(1)
        headers = (("ce_id", b"x"),)
        await bench.appender.append([(Draft(REQUESTS, bench.key(1), b"\xff", headers),)])
        await bench.appender.append([(Draft(EVENTS, bench.key(1), b"\xff"),)])
        await bench.put(REQUESTS, 1, "r1")
        handler = run.handlers[1]
        await handler.until(lambda: handler.values(REQUESTS) == ["r1"])
        await run.end()
    letters = await _mine(bench, dead_letters(REQUESTS), 1)
    assert [(letter.value, letter.header("dlq_reason")) for letter in letters] == [(b"\xff", b"not valid JSON")]
    assert letters[0].header("dlq_topic") == REQUESTS.encode()
    assert letters[0].header("ce_id") == b"x"
    assert await _mine(bench, dead_letters(EVENTS), 1) == []


class Failing(SeenByPartition):
    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        if self._mine(batch.get(REQUESTS, [])):
            raise ZeroDivisionError
        await super().handle(batch)


async def test_what_escapes_a_handler_ends_the_worker_and_commits_nothing(bench: WorkerBench) -> None:
    async with running(bench, kind=Failing) as run:
        await run.restored(*range(PARTITIONS))
        await bench.put(REQUESTS, 0, "r1")
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(DEADLINE_S):
                await run.task
        assert not run.handlers[0].closed
    async with running(bench) as run:
        await run.restored(0)
        await run.handlers[0].until(lambda: run.handlers[0].values(REQUESTS) == ["r1"])


async def test_a_mark_beyond_the_log_is_a_gap_never_a_jump(bench: WorkerBench) -> None:
    assigned: asyncio.Queue[frozenset[int]] = asyncio.Queue()
    member = bench.log.membership(bench.group, "worker-0", INPUTS.topics)
    await member.start(assigned.put, assigned.put)
    async with asyncio.timeout(DEADLINE_S):
        await assigned.get()
    await member.commit({(EVENTS, 1): 10**9})
    await member.stop()
    async with running(bench) as run:
        with pytest.raises(LogGap, match="1000000000"):
            async with asyncio.timeout(DEADLINE_S):
                await run.task


async def test_a_tick_comes_when_it_is_due(bench: WorkerBench) -> None:
    async with running(bench) as run:
        await run.restored(0)
        loop = asyncio.get_running_loop()
        handler = run.handlers[0]
        run.worker.call_at(0, loop.time() + 60)
        run.worker.call_at(0, loop.time() + 0.05)
        await handler.until(lambda: handler.ticks == 1)


async def test_a_doorbell_cuts_the_pause_of_lazy_topics_short(bench: WorkerBench) -> None:
    async with running(bench, pace=Pace(lazy_pause_s=60.0, drain_s=3.0)) as run:
        await run.restored(0)
        handler = run.handlers[0]
        await bench.put(EVENTS, 0, "e1")
        await handler.until(lambda: handler.values(EVENTS) == ["e1"])
        await bench.put(EVENTS, 0, "e2")
        run.worker.wake()
        await handler.until(lambda: handler.values(EVENTS) == ["e1", "e2"])


TURN = 400
"""Records, at most, for which others of the process wait."""


class SlowHandler(SeenByPartition):
    gate: asyncio.Event
    largest = 0

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        SlowHandler.largest = max(SlowHandler.largest, sum(map(len, batch.values())))
        await self.gate.wait()
        await super().handle(batch)


async def test_a_slow_partition_is_not_overrun_and_gets_everything(bench: WorkerBench) -> None:
    SlowHandler.gate = asyncio.Event()
    pace = Pace(lazy_pause_s=0.001, queue_limit=50, watchdog_s=0.2)
    async with running(bench, kind=SlowHandler, pace=pace) as run:
        await run.restored(0)
        values = [str(n) for n in range(3000)]
        await bench.put(REQUESTS, 0, *values)
        SlowHandler.gate.set()
        handler = run.handlers[0]
        await handler.until(lambda: len(handler.values(REQUESTS)) >= len(values))
        assert handler.values(REQUESTS) == values
        assert 0 < SlowHandler.largest <= TURN


async def test_tables_are_loaded_first_and_follow(bench: WorkerBench) -> None:
    key = bench.key(0).decode()
    await bench.put(Topic.WORKERS, 0, "v1")
    async with running(bench) as run:
        await run.restored(0)
        table = run.worker.tables[Topic.WORKERS]
        assert table.get(key) == b"v1"
        changes: asyncio.Queue[tuple[str, bytes | None]] = asyncio.Queue()
        table.on_change(lambda name, value: changes.put_nowait((name, value)))
        await bench.put(Topic.WORKERS, 0, "v2", "")
        async with asyncio.timeout(DEADLINE_S):
            assert [await changes.get(), await changes.get()] == [(key, b"v2"), (key, None)]
        assert table.get(key) is None


@pytest.mark.parametrize("bench", ["memory"], indirect=True)
async def test_a_silent_reader_is_renewed(bench: WorkerBench) -> None:
    assert isinstance(bench.log, MemoryLog)
    async with running(bench) as run:
        await run.restored(0)
        await bench.put(REQUESTS, 0, "r1")
        await run.handlers[0].until(lambda: run.handlers[0].values(REQUESTS) == ["r1"])
        bench.log.silence_readers()
        await bench.put(REQUESTS, 0, "r2")
        await bench.put(EVENTS, 0, "e2")
        handler = run.handlers[0]
        await handler.until(lambda: len(handler.values(REQUESTS, EVENTS)) == 3)


@pytest.mark.parametrize("bench", ["memory"], indirect=True)
async def test_an_outage_is_waited_out(bench: WorkerBench) -> None:
    assert isinstance(bench.log, MemoryLog)
    async with running(bench) as run:
        await run.restored(0)
        bench.log.faults.unreachable_polls = 3
        await bench.put(REQUESTS, 0, "r1")
        await run.handlers[0].until(lambda: run.handlers[0].values(REQUESTS) == ["r1"])


async def _mine(bench: WorkerBench, topic: str, partition: int) -> list[Record]:
    place = (topic, partition)
    begins, ends = await bench.log.beginning_offsets([place]), await bench.log.end_offsets([place])
    found = [r async for records in replay(bench.log, place, begins[place], ends[place]) for r in records]
    return [record for record in found if (record.key or b"").startswith(bench.prefix.encode())]


@pytest.mark.parametrize("bench", ["memory"], indirect=True)
async def test_what_is_made_again_is_not_missed(bench: WorkerBench) -> None:
    renewed = replace(INPUTS, made_again=frozenset({REQUESTS}))
    async with running(bench, inputs=renewed) as run:
        await run.restored(2)
        handler = run.handlers[2]
        handler.open_command = 0
        await bench.put(REQUESTS, 2, "r1", "r2")
        await handler.until(lambda: len(handler.values(REQUESTS)) == 2)
        await run.end()
    assert isinstance(bench.log, MemoryLog)
    bench.log.delete_below((REQUESTS, 2), 1)
    async with running(bench, inputs=renewed) as run:
        await run.restored(2)
        handler = run.handlers[2]
        handler.open_command = 1
        await handler.until(lambda: handler.values(REQUESTS) == ["r2"])
        await run.end()
    bench.log.delete_below((REQUESTS, 2), 2)
    async with running(bench) as run:
        with pytest.raises(LogGap, match="is needed"):
            async with asyncio.timeout(DEADLINE_S):
                await run.task


@pytest.mark.parametrize("bench", ["memory"], indirect=True)
async def test_what_is_made_again_holds_its_offset_for_a_day(bench: WorkerBench) -> None:
    assert isinstance(bench.log, MemoryLog)
    place = (str(REQUESTS), 2)
    async with running(bench, inputs=replace(INPUTS, made_again=frozenset({REQUESTS}))) as run:
        await run.restored(2)
        handler = run.handlers[2]
        handler.open_command = 0
        await bench.put(REQUESTS, 2, "r1")
        await handler.until(lambda: len(handler.values(REQUESTS)) == 1)
        bench.log.pass_time(3_600_000)
        await bench.put(REQUESTS, 2, "r2")
        await handler.until(lambda: len(handler.values(REQUESTS)) == 2)
        await run.end()
    member = bench.log.membership(bench.group, "looks", INPUTS.topics)
    assert await member.committed([place]) == {place: 1}, "by the log's time both are of 1970"
