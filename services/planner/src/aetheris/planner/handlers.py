"""The planner's edge: one partition's records in, its decisions out (docs/architecture.md, "planner")."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC

import structlog

from aetheris.planner.core.backlog import JOBS_IN_FLIGHT, Backlog
from aetheris.planner.core.behind import Behinds
from aetheris.planner.core.decisions import (
    Append,
    Behind,
    IndexUpdate,
    LoadArguments,
    Look,
    NewEvent,
    NodesRequest,
    Output,
    RefusedSubmission,
    SubmissionConflict,
)
from aetheris.planner.core.index_lines import Indexed
from aetheris.planner.core.partition import Partition
from aetheris.planner.core.watch import STUCK_AFTER_S, StuckJobWatch
from aetheris.protocol.base.ids import derived, event_id
from aetheris.protocol.base.keys import job_key
from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.provenance import Standing
from aetheris.protocol.fold.rules import UNREAD
from aetheris.protocol.messages.commands import Cancel, JobBehind, JobCommand, Pause, Resume, Submit
from aetheris.protocol.messages.envelope import (
    Envelope,
    NeedsUpgrade,
    Undecodable,
    UnknownRecord,
    decode_event,
    decode_message,
    draft,
)
from aetheris.protocol.messages.events import (
    Event,
    JobCancelled,
    JobCompleted,
    JobCreated,
    JobFailed,
    PlanGenerated,
    StateCheckpointed,
    StepCompensated,
    WaitCompleted,
)
from aetheris.protocol.planning.continuation import EndedJob
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.blobs.traffic import BlobTraffic
from aetheris.runtime.keys.records import UNSIGNED, PartitionRecords, RecordKeys
from aetheris.runtime.log.interface import LogError, Writer
from aetheris.runtime.process.crash import NOWHERE, CrashPoints
from aetheris.runtime.process.withheld import Withheld, write_all
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.runtime.telemetry.spans import SpanKind
from aetheris.runtime.telemetry.tracer import Telemetry, Traced, whole
from aetheris.runtime.worker.loop import PartitionHandler
from aetheris.runtime.worker.unjudged import report_unjudged
from aetheris.runtime.worker.unsigned import HeardMessages

SOURCE = "aetheris/planner"

UNLOADED_AGAIN_S = 5.0

_LOOK_AGAIN_S = 1.0

_FEW = 4
"""Jobs that go on by themselves in a partition, up to which the end of one is told at once."""

_ENDS = (JobCompleted, JobFailed, JobCancelled)
_TAKEN_UP = (Submit, Cancel, Pause, Resume)
"""The other commands are the ledger's."""

Quarantine = Callable[[Record, str], None]
Again = Callable[[int, int], AsyncIterator[Sequence[Record]]]
"""Reads a stretch of the partition's jobs.commands once more: from an offset, at least up to another."""
LookUp = Callable[[str], Awaitable[EndedJob | None]]
"""A job of any partition as its stream has it now; None where there is none. Raises LogError."""
Written = Append | NodesRequest | IndexUpdate | Behind

_log = structlog.get_logger(__name__)


class PlannerHandler(PartitionHandler):
    """Folds jobs.events, takes up commands, appends events, requests and index lines."""

    def __init__(
        self,
        *,
        appender: Writer,
        withheld: Withheld,
        indexed: Indexed,
        behind: Behinds,
        quarantine: Quarantine,
        traffic: BlobTraffic,
        telemetry: Telemetry,
        metrics: Metrics,
        clock: Clock,
        again: Again,
        keys: RecordKeys = UNSIGNED,
        partition: int = 0,
        taken: Callable[[], int] = lambda: -1,
        look_up: LookUp,
        crash: CrashPoints = NOWHERE,
        runs: bool = True,
        stuck_after_s: float = STUCK_AFTER_S,
        jobs_in_flight: int = JOBS_IN_FLIGHT,
        call_at: Callable[[float], None] | None = None,
        catch_up: Callable[[], None] = lambda: None,
        wake_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._appender = appender
        self._records = PartitionRecords(keys, partition)
        self._taken = taken
        self._commands = HeardMessages(keys.messages, metrics)
        self._withheld = withheld
        self._creations: dict[str, Record] = {}
        """Submissions whose birth is being written."""
        self._quarantine = quarantine
        self._traffic = traffic
        self._unloaded: dict[tuple[str, str], LoadArguments] = {}
        """What waits for large results that can't be had now, by job and node."""
        self._telemetry = telemetry
        self._metrics = metrics
        self._clock = clock
        self._crash = crash
        self._again = again
        self._look_up = look_up
        self._looking: dict[int, asyncio.Task[None]] = {}
        """Submissions that continue a job which is being read, by their offsets."""
        self._looked: list[tuple[Submit, str, Record, EndedJob | None]] = []
        self._call_at = call_at
        self._catch_up = catch_up
        self._wake_up = wake_up
        self._live = False
        self._partition = Partition(indexed, runs, behind, StuckJobWatch(stuck_after_s), Backlog(jobs_in_flight))

    @property
    def stuck(self) -> int:
        """How many jobs are stuck now."""
        return len(self._partition.watch.stuck)

    def fold(self, records: Sequence[Record]) -> None:
        """History, in log order: causes no output."""
        for record in records:
            self._fold(record)

    async def restored(self) -> None:
        """Take up what is open: requests, reports, ends and index lines that a crash kept from being written."""
        self._live = True
        outputs = await self._loaded(self._partition.recover(self._clock.monotonic()))
        await self._append(self._groups(outputs, again=True))
        self._watch()

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """Fold the events, take up the commands, append what follows at once, then the lines of the index."""
        self.fold(batch.get(Topic.JOBS_EVENTS, ()))
        decided = self._partition.decide(self._clock.monotonic())  # first: a job just created takes up room
        report_unjudged(self._partition.unjudged, self._metrics)
        groups: list[Group] = []
        for record in batch.get(Topic.JOBS_COMMANDS, ()):
            groups.extend(self._command(record))
        outputs = await self._loaded(decided)
        if self._crash.armed:
            self._reach(outputs)
        groups.extend(self._groups(outputs))
        self._trace_joined()
        ends = any(_ends_job(output) for output in outputs)
        if ends and self._partition.watch.moving <= _FEW:
            self._wake_up()  # a client waits for this; with more jobs it is read together with others soon enough
        lines = [group for group in groups if group[0].topic == Topic.JOBS_INDEX]
        await self._append([group for group in groups if group[0].topic != Topic.JOBS_INDEX])
        if ends or Topic.JOBS_COMMANDS in batch or self._partition.has_planned():
            self._catch_up()  # a birth, a plan, an end go on when they are folded like any other event: that is awaited
        await self._append(lines)  # behind what jobs wait for
        await self._take_up_backlog(self._partition.make_room())
        self._watch()

    async def tick(self) -> None:
        """Go on with what waited for large results; say which jobs are stuck, and ask again for what they wait for."""
        await self._append(self._looked_up())
        if self._unloaded:
            await self._append(self._groups(await self._loaded(self._still_unloaded())))
            if self._unloaded and self._call_at is not None:
                self._call_at(self._clock.monotonic() + UNLOADED_AGAIN_S)
        for stuck in self._partition.stuck(self._clock.monotonic()):
            _log.warning("job stuck", job_id=stuck.job_id, waits_for=stuck.waits_for, quiet_s=round(stuck.quiet_s, 1))
            await self._append(self._groups(await self._loaded(stuck.outputs), again=True))
        self._watch()

    async def close(self) -> None:
        """The jobs are somebody else's now."""
        self._partition.watch.clear()
        for task in self._looking.values():
            task.cancel()
        await asyncio.gather(*self._looking.values(), return_exceptions=True)

    def live(self) -> Iterable[tuple[str, int]]:
        """The live jobs."""
        return self._partition.live()

    def checkpointed(self, job_id: str, state_hash: str, as_of: int) -> Group:
        """In the log, so that anyone can compare what was cut out of it."""
        said = StateCheckpointed(job_id=job_id, state_hash=state_hash, as_of=as_of)
        return self._groups([Append((NewEvent(said, (str(as_of),)),))])[0]

    def low_water(self, topic: str) -> int | None:
        """The oldest submission that waits, for room or for the job that it continues, or cancel that waits."""
        if topic != Topic.JOBS_COMMANDS:
            return None
        waiting = (self._partition.low_water(), *self._looking)
        return min((at for at in waiting if at is not None), default=None)

    def _watch(self) -> None:
        due_s = self._partition.watch.next_due()
        if due_s is not None and self._call_at is not None:
            self._call_at(due_s)

    def _fold(self, record: Record) -> None:
        self._records.taken(record.offset)
        self._evolve(record)
        self._partition.lies((record.key or b"").decode(errors="replace"), record.offset)

    def _evolve(self, record: Record) -> None:
        try:
            found = decode_event(record, UNREAD)
        except Undecodable as error:
            if self._live:
                self._quarantine(record, str(error))
            return
        if isinstance(found, Envelope):
            if (standing := self._records.judge(record, found.body)) is not Standing.COUNTS:
                self._set_aside(found, standing)
                return
            if self._crash.armed and self._live and isinstance(found.body, WaitCompleted):
                self._crash.reach("after_wait")
            self._partition.evolve(found)
        elif isinstance(found, NeedsUpgrade):
            self._partition.needs_upgrade(found.job_id, record.offset)

    def _set_aside(self, found: Envelope[Event], standing: Standing) -> None:
        """What its writer has not signed changes nothing; a job under a root that is not known here waits."""
        job_id, offset, name = found.body.job_id, found.record.offset, found.body.event_type
        if standing is Standing.UNKNOWN_ROOT:
            self._partition.needs_upgrade(job_id, offset)
        elif isinstance(found.body, JobCreated):
            self._partition.born_in_vain(job_id)
        if self._live:
            _log.warning("a record does not count", job_id=job_id, offset=offset, type=name, standing=standing.value)

    def _command(self, record: Record, *, waited: bool = False) -> Sequence[Group]:
        try:
            found = decode_message(record)
        except Undecodable as error:
            self._quarantine(record, str(error))
            return ()
        if isinstance(found, UnknownRecord):
            return ()
        if isinstance(found, NeedsUpgrade):
            self._quarantine(record, "a command of a newer version: upgrade, then redrive it")
            return ()
        if not isinstance(found.body, JobCommand):
            self._quarantine(record, "not a command")
            return ()
        if not isinstance(found.body, _TAKEN_UP) or not self._commands.counts(record, found.body.type_name):
            return ()
        if isinstance(found.body, Submit):
            tenant = found.body.tenant
            if not waited and self._partition.must_wait(tenant):
                self._partition.backlog.put(tenant, record.offset)
                return ()
            return self._submit(found.body, found.id, record)
        if isinstance(found.body, Cancel):
            cancelled = self._partition.cancel(found.body, found.id, record.offset)
            return self._groups([cancelled]) if cancelled is not None else ()
        paused = self._partition.pause(found.body, found.id, record.offset)
        return self._groups([paused]) if paused is not None else ()

    def _submit(self, command: Submit, command_id: str, record: Record) -> Sequence[Group]:
        decided = self._partition.submit(command, command_id, record.offset)
        if isinstance(decided, Look):
            self._looking[record.offset] = asyncio.create_task(self._look(command, command_id, record))
        elif isinstance(decided, SubmissionConflict):
            _log.warning("submitted again with another request", job_id=command.job_id)
        return self._write_created(decided, command, record)

    def _write_created(self, decided: object, command: Submit, record: Record) -> Sequence[Group]:
        if isinstance(decided, Append):
            self._creations[command.job_id] = record
            return self._groups([decided])
        if isinstance(decided, RefusedSubmission):
            self._quarantine(record, decided.reason)
        return ()

    async def _look(self, command: Submit, command_id: str, record: Record) -> None:
        """Read the job that a submission continues, as often as it takes."""
        continued = command.continues.job_id if command.continues is not None else ""
        while True:
            try:
                ended = await self._look_up(continued)
            except LogError:
                await self._clock.sleep(_LOOK_AGAIN_S)
                continue
            except Exception as error:  # noqa: BLE001 - it concerns this submission alone
                _log.error("a continued job can't be judged", job_id=continued, error=type(error).__name__)
                ended = None
            self._looked.append((command, command_id, record, ended))
            self._wake()
            return

    def _looked_up(self) -> list[Group]:
        """The births of those whose continued job has been read."""
        looked, self._looked = self._looked, []
        groups: list[Group] = []
        for command, command_id, record, ended in looked:
            del self._looking[record.offset]
            born = self._partition.looked_up(command, command_id, record.offset, ended)
            groups += self._write_created(born, command, record)
        if groups:
            self._catch_up()
        return groups

    async def _take_up_backlog(self, offsets: Sequence[int]) -> None:
        """Read submissions again that had no room when they came."""
        if not offsets:
            return
        wanted = set(offsets)
        async for records in self._again(offsets[0], offsets[-1] + 1):
            taken = [record for record in records if record.offset in wanted]
            await self._append([group for record in taken for group in self._command(record, waited=True)])
        self._partition.room_made()

    async def _loaded(self, outputs: Sequence[Output]) -> list[Written]:
        """The outputs, with what follows of the large results that some of them wait for."""
        found: list[Written] = []
        for output in outputs:
            if not isinstance(output, LoadArguments):
                found.append(output)
                continue
            refs = {ref.sha256: ref.size for ref in output.refs}
            results = await self._traffic.values(refs, self._wake)
            if results.keys() < refs.keys():
                self._unloaded[output.job_id, output.node_id] = output
                continue
            followed = self._partition.resolved(output.job_id, output.node_id, results)
            found.extend(one for one in followed if not isinstance(one, LoadArguments))
        return found

    def _wake(self) -> None:
        """A large result has come."""
        if self._call_at is not None:
            self._call_at(self._clock.monotonic())

    def _still_unloaded(self) -> list[LoadArguments]:
        waiting, self._unloaded = self._unloaded, {}
        return [load for load in waiting.values() if load.job_id in self._partition.jobs]

    def _groups(self, outputs: Sequence[Written], *, again: bool = False) -> list[Group]:
        time = self._clock.now().astimezone(UTC).isoformat().replace("+00:00", "Z")
        return [self._group(output, time, again=again) for output in outputs]

    def _group(self, output: Written, time: str, *, again: bool) -> Group:
        if isinstance(output, Append):
            return tuple(
                draft(
                    Topic.JOBS_EVENTS,
                    fact.event,
                    key=fact.event.job_id,
                    id=event_id(fact.event.job_id, fact.event.event_type, *fact.cause),
                    source=SOURCE,
                    time=time,
                    traceparent=self._traceparent(fact),
                )
                for fact in output.facts
            )
        if isinstance(output, NodesRequest):
            return (self._traced_request(output, time, again=again),)
        if isinstance(output, Behind):
            return (_behind_draft(output, time),)
        return (_index_draft(output, time),)

    def _traceparent(self, fact: NewEvent) -> bytes | None:
        if fact.key is None or not self._telemetry.on:
            return None
        return self._telemetry.traceparent(self._traced(fact.event.job_id, fact.key))

    def _traced(self, job_id: str, key: str) -> Traced:
        return Traced(job_id, key, self._partition.wants_trace(job_id))

    def _traced_request(self, output: NodesRequest, time: str, *, again: bool) -> Draft:
        """The first span of the key's trace; asked again after a restore, one beside it."""
        job_id = output.body.job_id
        if output.key is None:
            return _request_draft(output, time, None)
        traced = self._traced(job_id, output.key)
        if not self._telemetry.sampled(job_id, traced.wanted):
            return _request_draft(output, time, None)
        nodes, links = output.body.nodes, (job_key(job_id),)
        attributes = {"aetheris.job_id": job_id, "aetheris.node_id": nodes[0], "aetheris.run_nodes": len(nodes)}
        with self._telemetry.span(
            traced,
            "request",
            kind=SpanKind.PRODUCER,
            attributes=attributes,
            links=links,
            root=not again,
        ) as span:
            self._trace_step(traced, attributes)
            return _request_draft(output, time, span.traceparent)

    def _trace_step(self, call: Traced, attributes: Mapping[str, str | int]) -> None:
        """In the job's own trace: what was asked for, with a link to the trace that shows what came of it."""
        now_ns = round(self._clock.now().timestamp() * 1e9)
        job = whole(call.job_id, call.wanted)
        self._telemetry.record(job, "step", now_ns, now_ns, attributes=attributes, links=(call.key,))

    def _reach(self, outputs: Sequence[Written]) -> None:
        """The places to die at before a round is written."""
        for fact in (fact for output in outputs if isinstance(output, Append) for fact in output.facts):
            if isinstance(fact.event, PlanGenerated):
                self._crash.reach("before_plan", fact.event.planner)
            elif isinstance(fact.event, StepCompensated):
                self._crash.reach("before_compensated")

    def _trace_joined(self) -> None:
        """The later nodes of a run are never requested: their span is made when they have started."""
        found = self._partition.joined()
        if not self._telemetry.on:
            return
        now_ns = round(self._clock.now().timestamp() * 1e9)
        for joined in found:
            traced = self._traced(joined.job_id, joined.key)
            if self._telemetry.sampled(joined.job_id, traced.wanted):
                attributes = {"aetheris.job_id": joined.job_id, "aetheris.node_id": joined.node_id}
                links = (job_key(joined.job_id),)
                self._telemetry.record(traced, "request", now_ns, now_ns, attributes=attributes, links=links, root=True)
                self._trace_step(traced, attributes)

    async def _append(self, groups: Sequence[Group]) -> None:
        """What is refused stops its own job only; a submission whose birth can't be written is quarantined."""
        self._records.taken(self._taken())
        refusals = await write_all(self._appender, self._records.signed(groups)) if groups else ()
        creations, self._creations = self._creations, {}
        for refusal in refusals:
            job_id = refusal.group[0].key.decode()
            record = creations.get(job_id) if refusal.group[0].topic == Topic.JOBS_EVENTS else None
            if record is None:
                self._withheld.keep(refusal)
            else:
                self._partition.not_created(job_id)
                self._quarantine(record, f"plan: too large to be recorded ({refusal.why})")


def _ends_job(output: Written) -> bool:
    return isinstance(output, Append) and any(isinstance(fact.event, _ENDS) for fact in output.facts)


def _request_draft(output: NodesRequest, time: str, traceparent: bytes | None) -> Draft:
    body = output.body
    return draft(
        Topic.TOOLS_REQUESTS,
        body,
        key=body.job_id,
        id=derived("request", body.job_id, body.nodes[0], str(body.revision), str(body.as_of)),
        source=SOURCE,
        time=time,
        subject=body.nodes[0],
        traceparent=traceparent,
    )


def _index_draft(output: IndexUpdate, time: str) -> Draft:
    entry = output.entry
    sealed = ("sealed",) if entry.stretches else ()
    return draft(
        Topic.JOBS_INDEX,
        entry,
        key=entry.job_id,
        id=derived("index", entry.job_id, entry.status, *sealed),
        source=SOURCE,
        time=time,
    )


def _behind_draft(output: Behind, time: str) -> Draft:
    entry = output.entry
    return draft(
        Topic.JOBS_INDEX,
        entry,
        key=JobBehind.key_of(entry.of_job),
        id=derived("behind", entry.of_job, str(entry.stretches[-1][1])),
        source=SOURCE,
        time=time,
    )
