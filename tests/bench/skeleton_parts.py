"""A part of the skeleton, as a process: `python -m tests.bench.skeleton_parts planner|ledger|tool_executor|verifier`.

It reads and writes the records that the service of that name does, of the sizes that they have in W1, on the same
streams and in the same pauses. It checks and decides nothing: whatever comes is right. Environment: SKELETON_RECORDS
says what is made of a record (`skeleton_records`), `skipped` or `owed`.
"""

import asyncio
import hashlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import aetheris.runtime.process.lean  # noqa: F401  # pyright: ignore[reportUnusedImport]  before all others
from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.topics import Topic
from aetheris.rigs.bench.tools import RESULT, append
from aetheris.runtime.process import lifecycle
from aetheris.runtime.process.lifecycle import freeze_memory
from aetheris.runtime.process.runtime import Runtime, runtime
from aetheris.runtime.process.settings import RuntimeSettings, load
from aetheris.runtime.redis.effects import EffectEntry, EffectStore
from aetheris.runtime.redis.leases import Lease, Leases
from aetheris.runtime.redis.wake_up import AWAKE_S
from aetheris.runtime.worker.handler import PartitionHandler
from aetheris.runtime.worker.loop import Cadence, Inputs, Pace, PartitionWorker
from aetheris.tool_executor.effect_writer import EffectWriter
from tests.bench.skeleton_records import COMPLETED_LINE, Owed, Skipped, draft

TTL_S = 5.0
FEW = 4


def job_key(job: str, steps: int, *, parallel: bool) -> bytes:
    """A job's id, which says how many steps it has, and whether they are one run or none waits for another."""
    return f"{job}:{steps}:{'parallel' if parallel else 'run'}".encode()


def _shape(job: bytes) -> tuple[int, bool]:
    """How many steps, and whether they are parallel."""
    _, steps, kind = job.rsplit(b":", 2)
    return int(steps), kind == b"parallel"


def _kinds(records: Iterable[Record]) -> Iterable[tuple[bytes, bytes, bytes]]:
    """(kind, job, node) of each."""
    for record in records:
        yield record.header("ce_type") or b"", record.key or b"", record.header("ce_subject") or b""


class _Handler(PartitionHandler):
    """What all four are: nothing is kept over a restart."""

    def __init__(self, on: Runtime, worker: Callable[[], PartitionWorker], made: Skipped) -> None:
        self.on = on
        self.worker = worker
        self.made = made

    def events(self, batch: Mapping[str, Sequence[Record]]) -> Iterator[tuple[bytes, bytes, bytes]]:
        """(kind, job, node) of what was read of jobs.events."""
        for kind, job, node in _kinds(batch.get(Topic.JOBS_EVENTS, ())):
            self.made.fold(job)
            yield kind, job, node

    def event(self, kind: str, job: bytes, node: bytes = b"") -> Draft:
        """One for jobs.events."""
        return self.made.write(Topic.JOBS_EVENTS, kind, job, node)

    def live(self) -> Iterable[tuple[str, int]]:
        """Nothing is needed again."""
        return ()

    def fold(self, records: Sequence[Record]) -> None:
        """History is of no interest."""

    async def restored(self) -> None:
        """Nothing is open."""

    async def append(self, groups: Sequence[Group]) -> None:
        """Where there is something to append."""
        if groups:
            await self.on.appender.append(groups)


class SkeletonPlanner(_Handler):
    """Births, requests, node_finished, ends, and the lines of the index."""

    def __init__(self, on: Runtime, worker: Callable[[], PartitionWorker], made: Skipped) -> None:
        super().__init__(on, worker, made)
        self._done: Counter[bytes] = Counter()

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """One append for what jobs wait for, then one for the index."""
        groups: list[Group] = []
        lines: list[Group] = []
        hurry = Topic.JOBS_COMMANDS in batch
        for kind, job, node in self.events(batch):
            if kind == b"plan_generated":
                groups += _requests(job)
                lines.append((draft(Topic.JOBS_INDEX, "job_index", job),))
            elif kind == b"tool_invocation_finished":
                hurry = self._settled(job, node, groups) or hurry
            elif kind == b"job_completed":
                lines.append((draft(Topic.JOBS_INDEX, "job_index", job, value=COMPLETED_LINE),))
        for _, job, _ in _kinds(batch.get(Topic.JOBS_COMMANDS, ())):
            born = ("job_created", "plan_generated")
            groups.append(tuple(self.event(kind, job) for kind in born))
        await self.append(groups)
        if hurry:
            self.worker().catch_up()
        await self.append(lines)

    def _settled(self, job: bytes, node: bytes, groups: list[Group]) -> bool:
        groups.append((self.event("node_finished", job, node),))
        self._done[job] += 1
        if self._done[job] < _shape(job)[0]:
            return False
        del self._done[job]
        groups.append((self.event("job_completed", job),))
        return True


class _Asked(_Handler):
    """Who is asked for something, and waits for the job's plan first."""

    def __init__(self, on: Runtime, worker: Callable[[], PartitionWorker], made: Skipped) -> None:
        super().__init__(on, worker, made)
        self._planned: set[bytes] = set()
        self._held: list[tuple[bytes, bytes]] = []

    def fold(self, records: Sequence[Record]) -> None:
        """Plans that were there before."""
        for kind, job, _ in _kinds(records):
            self.note(kind, job)

    def note(self, kind: bytes, job: bytes) -> None:
        """Which jobs have a plan, and have not ended."""
        if kind == b"plan_generated":
            self._planned.add(job)
        elif kind == b"job_completed":
            self._planned.discard(job)

    def due(self, asked: Iterable[Record]) -> list[tuple[bytes, bytes]]:
        """What was asked for, and can be done now; the rest is kept, and the plans are read at once."""
        asked_now = self._held + [(job, node) for _, job, node in _kinds(asked)]
        self._held = [one for one in asked_now if one[0] not in self._planned]
        if self._held:
            self.worker().wake()
        return [one for one in asked_now if one[0] in self._planned]


class SkeletonLedger(_Asked):
    """Grants with their leases, once the plan was read; and a line for each settled key."""

    def __init__(self, on: Runtime, worker: Callable[[], PartitionWorker], made: Skipped) -> None:
        super().__init__(on, worker, made)
        self._leases = Leases(on.redis)
        self._effects = EffectStore(on.redis, TTL_S)

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """One append, one pipeline of leases, one of effects that are needed no more."""
        settled: list[tuple[bytes, bytes]] = []
        for kind, job, node in self.events(batch):
            self.note(kind, job)
            if kind == b"tool_invocation_finished":
                settled.append((job, node))
        granted = self.due(batch.get(Topic.TOOLS_REQUESTS, ()))
        groups: list[Group] = [(draft(Topic.TOOLS_GRANTS, "tool_grant", *one),) for one in granted]
        groups += [(draft(Topic.LEDGER_RECORDS, "ledger_record", *one),) for one in settled]
        writing = [self.append(groups)]
        if granted:
            writing.append(self._leases.grant([Lease(_name(*one), "x" * 36, TTL_S) for one in granted]))
        if settled:
            writing.append(self._effects.drop([(job.decode(), _name(job, node)) for job, node in settled]))
        await asyncio.gather(*writing)


class SkeletonExecutor(_Asked):
    """Declares, reads back, calls, keeps the effect, reports."""

    def __init__(self, on: Runtime, worker: Callable[[], PartitionWorker], made: Skipped) -> None:
        super().__init__(on, worker, made)
        self._effects = EffectWriter(EffectStore(on.redis, TTL_S), on.clock, TTL_S, TTL_S)
        self._notes = os.environ["BENCH_FILE"]
        self._declared: dict[tuple[bytes, bytes], asyncio.Future[None] | None] = {}
        """What is not read back yet → who waits for it; nobody does for the first of a grant."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """What was read back is called; what was granted is declared, by one append."""
        for kind, job, node in self.events(batch):
            self.note(kind, job)
            if kind == b"tool_invocation_started":
                self._read_back(job, node)
        taken = self.due(batch.get(Topic.TOOLS_GRANTS, ()))
        if taken:
            self._declared.update(dict.fromkeys(taken))
            self._begin(self.append([(self._started(*one),) for one in taken]))

    def _read_back(self, job: bytes, node: bytes) -> None:
        waiting = self._declared.pop((job, node), None)
        if waiting is None:
            self._begin(self._run(job, node))
        else:
            waiting.set_result(None)

    async def _run(self, job: bytes, node: bytes) -> None:
        """The nodes of a run, one after the other, each only after its `started` was read back."""
        steps, parallel = _shape(job)
        going_on = True
        while going_on:
            name = _name(job, node)
            append(self._notes, name)
            report = tuple(self.event(kind, job, node) for kind in ("tool_invocation_finished", "command_committed"))
            await self._effects.put(EffectEntry(job.decode(), name, "x" * 36, RESULT))
            going_on = not parallel and int(node) + 1 < steps
            if not going_on:
                await self.append([report])
                if len(self._tasks) <= FEW:
                    self.on.wake_up.send("planner")
                break
            node = b"%d" % (int(node) + 1)
            won = self._declared[job, node] = asyncio.get_running_loop().create_future()
            await self.append([(*report, self._started(job, node))])
            await won

    def _started(self, job: bytes, node: bytes) -> Draft:
        return self.event("tool_invocation_started", job, node)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class SkeletonVerifier(_Handler):
    """A chain of hashes over each job's events, and its seal."""

    def __init__(self, on: Runtime, worker: Callable[[], PartitionWorker], made: Skipped) -> None:
        super().__init__(on, worker, made)
        self._chains: dict[bytes, bytes] = {}

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """Every record is hashed."""
        groups: list[Group] = []
        for record in batch.get(Topic.JOBS_EVENTS, ()):
            job = record.key or b""
            self.made.audit(job)
            self._chains[job] = hashlib.sha256(self._chains.get(job, b"") + record.value).digest()
            if record.header("ce_type") == b"job_completed":
                del self._chains[job]
                groups += [(draft(topic, "job_sealed", job),) for topic in (Topic.JOBS_EVENTS, Topic.JOBS_SEALS)]
            elif record.header("ce_type") == b"job_sealed":
                del self._chains[job]
        await self.append(groups)


def _requests(job: bytes) -> list[Group]:
    """A run is one request, for its first node."""
    steps, parallel = _shape(job)
    return [(draft(Topic.TOOLS_REQUESTS, "tool_request", job, b"%d" % n),) for n in range(steps if parallel else 1)]


def _name(job: bytes, node: bytes) -> str:
    """As the notes have it."""
    return f"skeleton:{job.decode().split(':')[0]}:n{node.decode()}"


PARTS: Mapping[str, tuple[type[_Handler], Inputs]] = {
    "planner": (SkeletonPlanner, Inputs(commands={Topic.JOBS_COMMANDS: Cadence.EAGER})),
    "ledger": (SkeletonLedger, Inputs(commands={Topic.TOOLS_REQUESTS: Cadence.EAGER})),
    "tool_executor": (
        SkeletonExecutor,
        Inputs(commands={Topic.TOOLS_GRANTS: Cadence.EAGER}, authority_cadence=Cadence.OWN),
    ),
    "verifier": (SkeletonVerifier, Inputs()),
}


async def serve(service: str, settings: RuntimeSettings, stop: asyncio.Event) -> None:
    """Until `stop` is set."""
    kind, inputs = PARTS[service]
    made = {"skipped": Skipped, "owed": Owed}[os.environ["SKELETON_RECORDS"]]()
    async with runtime(settings, service, stop) as on:
        worker = PartitionWorker(
            on.log,
            on.appender,
            inputs,
            lambda _partition: kind(on, lambda: worker, made),
            group=f"skeleton.{service}",
            member=f"{service}-0",
            pace=Pace.of(settings),
        )
        freeze_memory(only_facts=True)
        listening = asyncio.create_task(on.wake_up.listen(service, partial(worker.wake, AWAKE_S)))
        try:
            await worker.run(stop)
        finally:
            listening.cancel()


if __name__ == "__main__":
    name = sys.argv[1]
    sys.exit(lifecycle.run(lambda stop: serve(name, load(RuntimeSettings), stop), service=name))
