"""The ledger's edge: one partition's records in, events, grants and questions out (docs/architecture.md)."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from typing import Protocol

import structlog

from aetheris.ledger.contents_table import ContentsTable
from aetheris.ledger.core.decisions import Ask, Confirm, Decision, Emit, Grant, Line, Now, View
from aetheris.ledger.core.memory import Terms, WorkerLife
from aetheris.ledger.core.partition import Partition
from aetheris.ledger.quarantines import Quarantines
from aetheris.ledger.reconciling import Reconciler
from aetheris.ledger.stores import Stores
from aetheris.ledger.workers import Workers
from aetheris.protocol.base.ids import derived
from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.job_log import text_of
from aetheris.protocol.fold.rules import UNREAD
from aetheris.protocol.messages.commands import (
    ContentRecord,
    LedgerRecord,
    Message,
    Reconcile,
    StepCommand,
    Submit,
    ToolRequest,
    Verification,
)
from aetheris.protocol.messages.envelope import Envelope, NeedsUpgrade, Undecodable, decode_event, decode_message, draft
from aetheris.protocol.messages.events import (
    ApprovalDecided,
    ApprovalRequested,
    ConfirmationFailed,
    EffectConfirmed,
    Event,
    JobWaiting,
    NodeFinished,
    PolicyAllowed,
    SignalReceived,
    WaitCompleted,
)
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.history import History
from aetheris.runtime.log.interface import Writer
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.process.crash import NOWHERE, CrashPoints
from aetheris.runtime.redis.leases import Lease
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.runtime.telemetry.spans import Kind
from aetheris.runtime.telemetry.tracer import Telemetry, Traced
from aetheris.runtime.worker.loop import PartitionHandler
from aetheris.runtime.worker.unjudged import tell_unjudged

SOURCE = "aetheris/ledger"

_ORDINARY = (PolicyAllowed, ApprovalRequested, JobWaiting, SignalReceived, WaitCompleted)
"""Nothing has failed where these are written: their spans are sampled like all others."""


def _types(*kinds: type[Event]) -> frozenset[bytes]:
    return frozenset(f"io.aetheris.{kind.event_type}.v1".encode() for kind in kinds)


_UNREAD = (UNREAD | _types(NodeFinished)) - _types(EffectConfirmed, ConfirmationFailed)
"""Facts that decide nothing here, passed over unparsed: whether a node is done is said by its key."""

_SUBMIT = f"io.aetheris.{Submit.type_name}.v1".encode()
"""The planner's; its plan may be long, and is passed over unparsed."""

_log = structlog.get_logger(__name__)


class Bells(Protocol):
    """What the handler needs of the worker that feeds it."""

    def wake(self) -> None:
        """Read the lazy topics now."""
        ...

    def call_at(self, partition: int, due_s: float) -> None:
        """Tick at that time."""
        ...

    def quarantine(self, record: Record, reason: str) -> None:
        """Put what can't be used into its DLQ."""
        ...


@dataclass(frozen=True)
class Edge:
    """What all partitions share."""

    writer: Writer
    stores: Stores
    workers: Workers
    contents: ContentsTable
    quarantines: Quarantines
    telemetry: Telemetry
    metrics: Metrics
    clock: Clock
    bells: Bells
    crash: CrashPoints = NOWHERE


class LedgerHandler(PartitionHandler):
    """Folds jobs.events, takes up requests and resolutions, carries out what the core decides."""

    def __init__(self, number: int, terms: Terms, edge: Edge, history: History) -> None:
        self._number = number
        self._edge = edge
        self._partition = Partition(terms, edge.workers.ended)
        self._reconciler = Reconciler(number, history, terms.verifies, self._ask)
        self._confirmed: list[LedgerRecord] = []
        self._late: set[asyncio.Task[None]] = set()
        """What waits for the store of blobs."""
        edge.workers.listen(self._worker_ended)
        edge.contents.listen(self._contents_changed)

    def fold(self, records: Sequence[Record]) -> None:
        """History, in log order: causes no output."""
        now = self._now()
        for record in records:
            self._fold(record, now)

    def begin(self, start: int) -> None:
        """What is asked of a place below `start` can be judged."""
        self._partition.pass_over(start - 1)

    async def restored(self) -> None:
        """Give every open try its time, and go on with what the log says is due."""
        self._partition.contradictions.clear()  # whoever lived then has told of them
        await self._edge.stores.begin()
        await self._edge.quarantines.begin(self._number)
        self._partition.restored(self._now())
        await self._round()

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """Fold the events, take up what was asked, decide: one append for the round."""
        self.fold(batch.get(Topic.JOBS_EVENTS, ()))
        if self._partition.contradictions:
            self._tell_of_contradictions()
        for record in batch.get(Topic.TOOLS_REQUESTS, ()):
            self._request(record)
        for record in batch.get(Topic.JOBS_COMMANDS, ()):
            self._command(record)
        await self._round()

    async def tick(self) -> None:
        """Something is due."""
        await self._round()

    def live(self) -> Iterable[tuple[str, int]]:
        """The live jobs."""
        return self._partition.live()

    def low_water(self, topic: str) -> int | None:
        """The oldest request that is not discharged, or command that waits: a restart reads it again."""
        if topic == Topic.TOOLS_REQUESTS:
            return self._partition.open_request()
        if topic != Topic.JOBS_COMMANDS:
            return None
        held = (self._partition.open_command(), self._reconciler.oldest())
        return min((offset for offset in held if offset is not None), default=None)

    async def close(self) -> None:
        """The next owner makes everything again from the log."""
        self._edge.workers.leave(self._worker_ended)
        self._edge.contents.leave(self._contents_changed)
        self._edge.quarantines.close(self._number)
        for late in tuple(self._late):
            late.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        await self._reconciler.close()

    # in

    def _fold(self, record: Record, now: Now) -> None:
        if record.header("ce_type") in _UNREAD:
            self._partition.pass_over(record.offset)
            return
        try:
            found = decode_event(record)
        except Undecodable:
            self._partition.pass_over(record.offset)
            return
        if isinstance(found, Envelope):
            body = found.body
            if type(body) is EffectConfirmed or type(body) is ConfirmationFailed:  # dearer by `isinstance`
                self._hear(body, record)
                self._partition.confirm(body, record.offset, now)
            else:
                self._partition.evolve(body, record.offset, now, record.timestamp_ms / 1000)
        elif isinstance(found, NeedsUpgrade):
            self._partition.needs_upgrade(found.job_id, record.offset, is_birth=found.is_birth)
        else:
            self._partition.pass_over(record.offset)

    def _request(self, record: Record) -> None:
        try:
            found = decode_message(record)
        except Undecodable as error:
            self._edge.bells.quarantine(record, str(error))
            return
        if isinstance(found, Envelope) and isinstance(found.body, ToolRequest):
            self._partition.request(found.body, record.offset, record.header("traceparent"))
        elif isinstance(found, NeedsUpgrade):
            self._edge.bells.quarantine(record, "a request of a newer version: upgrade, then redrive it")

    def _command(self, record: Record) -> None:
        if record.header("ce_type") == _SUBMIT:
            return
        try:
            found = decode_message(record)
        except Undecodable:
            return  # the planner is this topic's quarantiner
        if not isinstance(found, Envelope):
            return
        if isinstance(found.body, StepCommand):
            self._partition.hear(found.body, found.id, record.offset)
        elif isinstance(found.body, Reconcile):
            self._reconciler.take_up(found.body, found.id, record.offset)

    def _hear(self, answer: EffectConfirmed | ConfirmationFailed, record: Record) -> None:
        line = self._reconciler.hear(answer, text_of(record.header("ce_time")))
        if line is not None:
            self._confirmed.append(line)

    def _worker_ended(self, life: WorkerLife) -> None:
        if self._partition.worker_ended(life):
            self._edge.bells.call_at(self._number, self._edge.clock.monotonic())

    def _contents_changed(self, scope: str) -> None:
        if self._partition.contents_changed(scope, self._now()):
            self._edge.bells.call_at(self._number, self._edge.clock.monotonic())

    # out

    async def _tell_of_quarantines(self) -> None:
        words = self._partition.quarantine.words
        if words:
            self._partition.quarantine.words = []
            await self._edge.quarantines.tell(self._number, words)

    def _tell_of_contradictions(self) -> None:
        for said in self._partition.contradictions:
            _log.error("a success contradicts what was settled", job_id=said.job_id, node_id=said.node_id, via=said.via)
            traceparent = self._edge.telemetry.traceparent(self._trace_of(said.job_id, said.idempotency_key))
            self._edge.metrics.count(Metric.CONTRADICTED, traceparent=traceparent, via=said.via.value)
        self._partition.contradictions.clear()

    def _tell_of_unheard(self) -> None:
        for said in self._partition.unheard:
            _log.warning("a person's word decides nothing", job_id=said.job_id, command=said.command_id, why=said.why)
        self._partition.unheard.clear()

    async def _round(self) -> None:
        now = self._now()
        facts = await self._edge.stores.facts(self._partition.look(now), self._ring)
        now = self._now()
        decisions = self._partition.decide(facts, now)
        tell_unjudged(self._partition.unjudged, self._edge.metrics)
        await self._tell_of_quarantines()
        self._tell_of_unheard()
        if self._confirmed:
            decisions += [View(line) for line in self._confirmed]
            self._confirmed.clear()
        self._trace_joined(now)
        if decisions:
            await self._carry_out([one for one in decisions if not isinstance(one, Confirm)], now)
            self._confirm([one.message for one in decisions if isinstance(one, Confirm)])
        if self._partition.waits_for_fold or any(isinstance(decision, Emit) for decision in decisions):
            self._edge.bells.wake()
        due_s = self._partition.next_due()
        if due_s is not None:
            self._edge.bells.call_at(self._number, due_s)

    async def _carry_out(self, decisions: Sequence[Decision], now: Now) -> None:
        """One pipeline and one append; blobs lie in the store before the events that refer to them."""
        decisions = [one for one in decisions if not await self._waits_for_blobs(one, now)]
        time = _text(now)
        groups = [self._group(decision, time, now) for decision in decisions]
        leases = [_lease(decision) for decision in decisions if isinstance(decision, Grant)]
        settled = [(view.record.job_id, view.record.idempotency_key) for view in decisions if isinstance(view, View)]
        writing = [self._edge.writer.append(groups)]
        if leases:
            writing.append(self._edge.stores.grant(leases))
        if settled:
            writing.append(self._edge.stores.forget(settled))
        await asyncio.gather(*writing)
        if self._edge.crash.armed:
            self._reach(decisions)

    async def _waits_for_blobs(self, decision: Decision, now: Now) -> bool:
        """Whether what it refers to is not in the store yet: it is written by itself once that is."""
        keeping = (
            await self._edge.stores.keep(decision.blobs) if isinstance(decision, Emit) and decision.blobs else None
        )
        if keeping is None:
            return False
        writing = asyncio.create_task(self._write_later(keeping, self._group(decision, _text(now), now)))
        self._late.add(writing)
        writing.add_done_callback(self._late.discard)
        return True

    async def _write_later(self, keeping: "asyncio.Task[None]", group: Group) -> None:
        try:
            await keeping
        finally:
            keeping.cancel()
        await self._edge.writer.append([group])
        self._edge.bells.wake()

    def _ring(self) -> None:
        self._edge.bells.call_at(self._number, self._edge.clock.monotonic())

    def _reach(self, decisions: Sequence[Decision]) -> None:
        """The place to die at once an answer is recorded."""
        emitted = (written.event for emit in decisions if isinstance(emit, Emit) for written in emit.events)
        if any(isinstance(event, ApprovalDecided) for event in emitted):
            self._edge.crash.reach("after_approval")

    def _group(self, decision: Decision, time: str, now: Now) -> Group:
        match decision:
            case View():
                return (self._view(decision.record, time),)
            case Grant():
                message = decision.message
                context = self._traced(decision, now)
                grant_id = derived("grant", message.lease_id, str(message.as_of))
                return (_draft(Topic.TOOLS_GRANTS, message, message.job_id, grant_id, time, context),)
            case Confirm():
                raise LookupError("its resources are read first")
            case Ask():
                return (self._question(decision.message, time),)
            case Emit():
                return self._events(decision, time, now)
            case Line():
                return (self._line(decision.record, time),)

    def _line(self, line: ContentRecord, time: str) -> Draft:
        """Keyed by its call, in the partition of its scope: there all see the lines of a scope in one order."""
        return draft(
            Topic.LEDGER_CONTENTS,
            line,
            key=f"{line.scope_key}:{line.execution_id}",
            id=derived("content", line.scope_key, line.execution_id, line.state),
            source=SOURCE,
            time=time,
            partition=partition_of(line.scope_key, self._edge.contents.partitions),
        )

    def _confirm(self, questions: Sequence[Verification]) -> None:
        for one in questions:
            self._reconciler.complete(one, self._partition.folded + 1, partial(self._nothing_changed, one))

    def _nothing_changed(self, asked: Verification) -> None:
        self._partition.nothing_changed(asked.job_id, asked.idempotency_key, self._now())
        self._edge.bells.call_at(self._number, self._edge.clock.monotonic())

    async def _ask(self, questions: Sequence[Verification]) -> None:
        time = _text(self._now())
        await self._edge.writer.append([(self._question(one, time),) for one in questions])

    def _question(self, message: Verification, time: str) -> Draft:
        context = self._edge.telemetry.traceparent(self._trace_of(message.job_id, message.idempotency_key))
        id_ = derived("question", message.job_id, message.ask)
        return _draft(Topic.VERIFICATIONS, message, message.job_id, id_, time, context)

    def _events(self, emit: Emit, time: str, now: Now) -> Group:
        context = None
        if emit.key is not None:
            names = ", ".join(written.event.event_type for written in emit.events)
            at_ns = _ns(now)
            attributes = {"aetheris.job_id": emit.job_id, "aetheris.writes": names}
            always = not isinstance(emit.events[0].event, _ORDINARY)
            traced = self._trace_of(emit.job_id, emit.key)
            context = self._edge.telemetry.record(traced, "judge", at_ns, at_ns, attributes=attributes, always=always)
        return tuple(
            draft(
                Topic.JOBS_EVENTS,
                written.event,
                key=emit.job_id,
                id=written.id,
                source=SOURCE,
                time=time,
                traceparent=context,
            )
            for written in emit.events
        )

    def _traced(self, grant: Grant, now: Now) -> bytes | None:
        traced = self._trace_of(grant.message.job_id, grant.message.idempotency_key)
        if not self._edge.telemetry.sampled(traced.job_id, traced.wanted):
            return None
        attributes = {
            "aetheris.job_id": grant.message.job_id,
            "aetheris.node_id": grant.message.nodes[0],
            "aetheris.run_nodes": len(grant.message.nodes),
            "aetheris.token": grant.message.token,
        }
        return self._edge.telemetry.record(
            traced,
            "adjudicate",
            _ns(now),
            _ns(self._now()),
            kind=Kind.PRODUCER,
            parent=grant.parent,
            attributes=attributes,
        )

    def _trace_of(self, job_id: str, key: str) -> Traced:
        job = self._partition.jobs.get(job_id)
        return Traced(job_id, key, None if job is None else job.state.trace)

    def _trace_joined(self, now: Now) -> None:
        """The later nodes of a run are not granted one by one: their span is made when they have started."""
        joined = self._partition.joined()
        if not self._edge.telemetry.on:
            return
        at_ns = _ns(now)
        for job_id, key in joined:
            self._edge.telemetry.record(self._trace_of(job_id, key), "adjudicate", at_ns, at_ns, kind=Kind.PRODUCER)

    def _view(self, record: LedgerRecord, time: str) -> Draft:
        """Keyed by its idempotency key, so that compaction keeps the last; in its job's partition all the same."""
        key = record.idempotency_key
        return draft(
            Topic.LEDGER_RECORDS,
            record,
            key=key,
            id=derived("record", key, str(record.offset)),
            source=SOURCE,
            time=time,
            partition=self._number,
        )

    def _now(self) -> Now:
        return Now(self._edge.clock.monotonic(), self._edge.clock.now())


def _draft(topic: Topic, body: Message, key: str, id: str, time: str, context: bytes | None) -> Draft:  # noqa: A002, PLR0917 - a record's parts, by CloudEvents' names
    return draft(topic, body, key=key, id=id, source=SOURCE, time=time, traceparent=context)


def _lease(grant: Grant) -> Lease:
    return Lease(grant.message.idempotency_key, grant.message.lease_id, grant.lease_ttl_s)


def _text(now: Now) -> str:
    return now.wall.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _ns(now: Now) -> int:
    return round(now.wall.timestamp() * 1e9)
