"""The ledger's edge: one partition's records in, events, grants and questions out (docs/architecture.md)."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import structlog

from aetheris.ledger.core.decisions import (
    Answered,
    Ask,
    Barrier,
    Confirm,
    Decision,
    Emit,
    Grant,
    Now,
    PolicyTaken,
    RulesTaken,
    View,
)
from aetheris.ledger.core.live_jobs import DecisionContext, WorkerLife
from aetheris.ledger.core.partition import Partition
from aetheris.ledger.core.quarantine import TenantTool
from aetheris.ledger.duplicate_table import DuplicateTable
from aetheris.ledger.ended_workers import EndedWorkers
from aetheris.ledger.operator_log import OperatorLog, report_activation
from aetheris.ledger.outbox import Outbox
from aetheris.ledger.placements import Placements
from aetheris.ledger.quarantines import ProcessQuarantines
from aetheris.ledger.reconciler import Reconciler
from aetheris.ledger.releases import Releases
from aetheris.ledger.stores import Stores
from aetheris.ledger.unread_activations import UnreadActivations
from aetheris.protocol.base.job_table import Resting
from aetheris.protocol.base.measures import Histogram
from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.job_log import text_of
from aetheris.protocol.fold.provenance import JobSigners, Standing
from aetheris.protocol.fold.rules import UNREAD
from aetheris.protocol.messages.commands import (
    ContentRecord,
    FreezeOrder,
    LedgerRecord,
    PolicyActivation,
    Reconcile,
    StepCommand,
    Submit,
    ToolRelease,
    ToolRequest,
    Verification,
)
from aetheris.protocol.messages.envelope import (
    BARRIERS,
    Envelope,
    NeedsUpgrade,
    Undecodable,
    decode_event,
    decode_message,
)
from aetheris.protocol.messages.events import (
    ApprovalDecided,
    ConfirmationFailed,
    EffectConfirmed,
    Event,
    NodeFinished,
)
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.keys.records import UNSIGNED, PartitionRecords, RecordKeys
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.interface import LogError, Writer
from aetheris.runtime.log.order_table import Ordered, OrderTable
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.process.crash import NOWHERE, CrashPoints
from aetheris.runtime.redis.leases import Lease
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.runtime.telemetry.tracer import Telemetry
from aetheris.runtime.worker.loop import PartitionHandler
from aetheris.runtime.worker.unsigned import HeardMessages, orders_read


def _types(*kinds: type[Event]) -> frozenset[bytes]:
    return frozenset(f"io.aetheris.{kind.event_type}.v1".encode() for kind in kinds)


_UNREAD = (UNREAD | _types(NodeFinished)) - _types(EffectConfirmed, ConfirmationFailed)
"""Facts that decide nothing here, passed over unparsed: whether a node is done is said by its key."""

_SUBMIT = f"io.aetheris.{Submit.type_name}.v1".encode()
"""The planner's; its plan may be long, and is passed over unparsed."""

_RETRY_PAUSE_S = 0.2

_log = structlog.get_logger(__name__)


class WakeUps(Protocol):
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
class LedgerDependencies:
    """What all partitions share."""

    writer: Writer
    stores: Stores
    workers: EndedWorkers
    placements: Placements
    duplicates: DuplicateTable
    quarantines: ProcessQuarantines
    releases: Releases
    freezes: OrderTable[FreezeOrders]
    policies: OrderTable[PolicyActivations]
    rules: OrderTable[RulesOrders]
    telemetry: Telemetry
    metrics: Metrics
    clock: Clock
    wake_ups: WakeUps
    queue_s: Histogram = field(default_factory=Histogram)
    """How long steps are asked for before they start."""
    keys: RecordKeys = UNSIGNED
    crash: CrashPoints = NOWHERE


class LedgerHandler(PartitionHandler):
    """Folds jobs.events, takes up requests and resolutions, carries out what the core decides."""

    def __init__(self, number: int, context: DecisionContext, deps: LedgerDependencies, history: JobLogReader) -> None:
        self._number = number
        self._deps = deps
        self._records = PartitionRecords(deps.keys, number, deps.rules.orders)
        self._messages = HeardMessages(deps.keys.messages, deps.metrics, deps.rules.orders)
        self._partition = Partition(context, deps.workers.ended, number, self._records.rules, deps.queue_s)
        self._reconciler = Reconciler(number, history, context.verifies, self._ask)
        self._outgoing = Outbox(number, deps.duplicates, deps.telemetry, deps.clock, self._partition.jobs)
        self._operators = OperatorLog(number, self._partition, deps.quarantines, deps.metrics, self._outgoing)
        self._confirmed: list[LedgerRecord] = []
        self._late: set[asyncio.Task[None]] = set()
        """What waits for the store of blobs."""
        self._asking: asyncio.Task[None] | None = None
        deps.workers.listen(self._worker_ended)
        deps.placements.listen(self._executors_changed)
        deps.duplicates.listen(self._duplicates_changed)
        deps.releases.listen(self._tool_released)
        for release in deps.releases:
            self._tool_released(release)
        for line in deps.duplicates.index.open_lines():
            self._line_read(line)
        self._policies, self._configured = context.policies, context.policy
        self._unread = UnreadActivations(
            self._partition,
            context.policies,
            deps.policies,
            metrics=deps.metrics,
            clock=deps.clock,
            wake_up=self._wake_up,
        )
        deps.policies.listen(self._policy_activated)
        for activation in deps.policies.orders.all():
            self._policy_activated(activation)
        deps.rules.listen(self._rules_ordered)
        deps.freezes.listen(self._freeze_ordered)
        for order in deps.freezes.orders.all():
            self._freeze_ordered(order)

    def fold(self, records: Sequence[Record]) -> None:
        """History, in log order: causes no output."""
        now = self._now()
        for record in records:
            self._fold(record, now)

    def handled_before(self, offset: int) -> None:
        """What follows from it lies in the log."""
        self._partition.handled_before(offset)

    def begin(self, start: int, live: Collection[tuple[str, int]] = ()) -> None:
        """What is asked of a place below `start` can be judged."""
        self._records.begin(start, live)
        self._partition.pass_over(start - 1)

    async def learn(self) -> None:
        """Who had the partition before may have answered an activation, or an order of rules: they hold here, too."""
        await self._deps.policies.caught_up()

    async def restored(self) -> None:
        """Give every open try its time, and go on with what the log says is due."""
        await self._deps.stores.begin()
        await self._operators.begin()
        self._partition.restored(self._now())
        await self._round()

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """Fold the events, take up what was asked, decide: one append for the round."""
        await orders_read(batch.get(Topic.JOBS_EVENTS, ()), self._deps.rules)
        self.fold(batch.get(Topic.JOBS_EVENTS, ()))
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

    def rest(self) -> Resting:
        """Jobs rest that nobody has asked for in a while."""
        return self._partition.rest()

    def rest_on_the_way(self) -> None:
        """The same while history is read."""
        self._partition.jobs.rest_on_the_way()

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
        self._deps.workers.leave(self._worker_ended)
        self._deps.placements.leave(self._executors_changed)
        self._deps.duplicates.leave(self._duplicates_changed)
        self._deps.releases.leave(self._tool_released)
        self._deps.freezes.leave(self._freeze_ordered)
        self._deps.policies.leave(self._policy_activated)
        self._deps.rules.leave(self._rules_ordered)
        self._operators.close()
        for late in tuple(self._late):
            late.cancel()
        asking = [self._asking] if self._asking is not None else []
        for task in asking:
            task.cancel()
        await asyncio.gather(*self._late, *asking, self._unread.close(), return_exceptions=True)
        await self._reconciler.close()

    # in

    def _fold(self, record: Record, now: Now) -> None:
        ce_type = record.header("ce_type")
        if ce_type in _UNREAD:
            self._partition.pass_over(record.offset)
            return
        if ce_type in BARRIERS:
            self._fold_barrier(record)
            return
        try:
            found = decode_event(record)
        except Undecodable:
            self._partition.pass_over(record.offset)
            return
        if isinstance(found, Envelope):
            body = found.body
            if (standing := self._records.judge(record, body)) is not Standing.COUNTS:
                self._set_aside(body.job_id, record.offset, standing)
            elif type(body) is EffectConfirmed or type(body) is ConfirmationFailed:  # dearer by `isinstance`
                self._hear(body, record)
                self._partition.confirm(body, record.offset, now)
            else:
                self._partition.evolve(body, record.offset, now, record.timestamp_ms / 1000)
        elif isinstance(found, NeedsUpgrade):
            self._partition.needs_upgrade(found.job_id, record.offset, is_birth=found.is_creation)
        else:
            self._partition.pass_over(record.offset)

    def _set_aside(self, job_id: str, offset: int, standing: Standing) -> None:
        """What its writer has not signed changes nothing; a job under a root that is not known here waits."""
        if standing is Standing.UNKNOWN_ROOT:
            _log.warning("a job waits: AETHERIS_INSTALLATION does not name its root", job_id=job_id, offset=offset)
            self._partition.needs_upgrade(job_id, offset, is_birth=True)
        else:
            self._partition.pass_over(offset)

    def _fold_barrier(self, record: Record) -> None:
        barrier = self._messages.barrier(record)
        if barrier is None:
            self._partition.pass_over(record.offset)
        else:
            self._partition.passed(barrier, record.offset)

    def _request(self, record: Record) -> None:
        try:
            found = decode_message(record)
        except Undecodable as error:
            self._deps.wake_ups.quarantine(record, str(error))
            return
        if isinstance(found, Envelope) and isinstance(found.body, ToolRequest):
            parent, at_s = record.header("traceparent"), record.timestamp_ms / 1000
            self._partition.request(found.body, record.offset, parent, at_s)
        elif isinstance(found, NeedsUpgrade):
            self._deps.wake_ups.quarantine(record, "a request of a newer version: upgrade, then redrive it")

    def _command(self, record: Record) -> None:
        if record.header("ce_type") == _SUBMIT:
            return
        try:
            found = decode_message(record)
        except Undecodable:
            return  # the planner is this topic's quarantiner
        body = found.body if isinstance(found, Envelope) else None
        if not isinstance(found, Envelope) or not isinstance(body, StepCommand | Reconcile):
            return
        if not self._messages.counts(record, body.type_name):
            return
        if isinstance(body, StepCommand):
            self._partition.hear(body, found.id, record.offset)
        else:
            self._reconciler.take_up(body, found.id, record.offset)

    def _hear(self, answer: EffectConfirmed | ConfirmationFailed, record: Record) -> None:
        line = self._reconciler.hear(answer, text_of(record.header("ce_time")))
        if line is not None:
            self._confirmed.append(line)

    def _worker_ended(self, life: WorkerLife) -> None:
        if self._partition.worker_ended(life):
            self._deps.wake_ups.call_at(self._number, self._deps.clock.monotonic())

    def _executors_changed(self) -> None:
        if self._partition.executors_changed(self._now()):
            self._wake_up()

    def _duplicates_changed(self, line: ContentRecord) -> None:
        is_awaited = self._partition.contents_changed(line.scope_key, self._now())
        if self._line_read(line) or is_awaited:
            self._deps.wake_ups.call_at(self._number, self._deps.clock.monotonic())

    def _line_read(self, line: ContentRecord) -> bool:
        named = partition_of(line.job_id, self._deps.duplicates.partitions)
        return self._number == (named if line.partition is None else line.partition) and self._partition.line_read(line)

    def _tool_released(self, release: ToolRelease) -> None:
        tool = TenantTool(release.tenant, release.tool)
        if self._partition.tool_released(tool, release.below_in(self._number), self._now()):
            self._deps.wake_ups.call_at(self._number, self._deps.clock.monotonic())

    def _freeze_ordered(self, order: Ordered) -> None:
        if not isinstance(order, FreezeOrder) or self._number in self._deps.freezes.orders.answers(order.key):
            return
        self._partition.ordered(order, self._now())
        self._deps.wake_ups.call_at(self._number, self._deps.clock.monotonic())

    def _policy_activated(self, record: Ordered) -> None:
        if not isinstance(record, PolicyActivation):
            return
        is_news = record.number > self._policies.number
        self._policies.take(record)
        if is_news:
            report_activation(record, self._policies, self._configured)
        if self._number not in self._deps.policies.orders.answers(record.key):
            self._partition.policy_activated(self._now())
            self._deps.wake_ups.call_at(self._number, self._deps.clock.monotonic())

    def _rules_ordered(self, _: Ordered) -> None:
        self._deps.wake_ups.call_at(self._number, self._deps.clock.monotonic())

    # out

    async def _round(self) -> None:
        now = self._now()
        facts = await self._deps.stores.facts(self._partition.to_fetch(now), self._wake_up)
        now = self._now()
        decisions = self._partition.decide(facts, now)
        await self._operators.report()
        if self._confirmed:
            decisions += [View(line) for line in self._confirmed]
            self._confirmed.clear()
        self._outgoing.record_joined(self._partition.joined(), now)
        if decisions:
            await self._carry_out([one for one in decisions if not isinstance(one, Confirm)], now)
            self._confirm([one.message for one in decisions if isinstance(one, Confirm)])
        if self._partition.unknown_freezes and self._asking is None:
            self._asking = asyncio.create_task(self._ask_for_orders())
        self._unread.look()
        if self._partition.waits_for_fold or any(isinstance(decision, Emit | Barrier) for decision in decisions):
            self._deps.wake_ups.wake()
        due_s = self._partition.next_due()
        if due_s is not None:
            self._deps.wake_ups.call_at(self._number, due_s)

    async def _ask_for_orders(self) -> None:
        """An order lies in its topic before any job carries it: what is not there now, nobody has ordered."""
        asked = self._partition.unknown_freezes
        try:
            await self._deps.freezes.caught_up()
        except LogError as error:
            _log.warning("what is ordered frozen is not known yet", error=str(error))
            await self._deps.clock.sleep(_RETRY_PAUSE_S)
        else:
            self._partition.orders_known(asked)
        self._asking = None
        self._wake_up()

    async def _carry_out(self, decisions: Sequence[Decision], now: Now) -> None:
        """One pipeline and one append; blobs lie in the store before the events that refer to them."""
        decisions = [one for one in decisions if not await self._waits_for_blobs(one, now)]
        groups = [self._group(decision, now) for decision in decisions]
        leases = [_lease(decision) for decision in decisions if isinstance(decision, Grant)]
        settled = [(view.record.job_id, view.record.idempotency_key) for view in decisions if isinstance(view, View)]
        groups = self._records.signed(groups)
        storing: list[asyncio.Task[None]] = []
        if leases:
            storing.append(asyncio.create_task(self._deps.stores.grant(leases)))
        if settled:
            storing.append(asyncio.create_task(self._deps.stores.forget(settled)))
        try:
            await self._deps.writer.append(groups)  # no task of its own: there is a round for every few records
        finally:
            for one in storing:
                await one
        if self._deps.crash.armed:
            self._reach(decisions)

    def _group(self, decision: Decision, now: Now) -> Group:
        if isinstance(decision, Ask):
            return (self._question(decision.message, self._records.signers_of(decision.message.job_id), now),)
        group = self._outgoing.group(decision, now)
        if isinstance(decision, Barrier | Answered | PolicyTaken | RulesTaken):
            return tuple(map(self._deps.keys.message, group))
        return group

    def _question(self, asked: Verification, job: JobSigners | None, now: Now) -> Draft:
        """Signed, and with what its answer is signed for: nobody else has the prober answer."""
        if job is not None:
            asked = asked.model_copy(update={"installation": job.installation, "born": job.born})
        return self._deps.keys.message(self._outgoing.question(asked, now))

    async def _waits_for_blobs(self, decision: Decision, now: Now) -> bool:
        """Whether what it refers to is not in the store yet: it is written by itself once that is."""
        keeping = (
            await self._deps.stores.keep(decision.blobs) if isinstance(decision, Emit) and decision.blobs else None
        )
        if keeping is None:
            return False
        writing = asyncio.create_task(self._write_later(keeping, self._outgoing.group(decision, now)))
        self._late.add(writing)
        writing.add_done_callback(self._late.discard)
        return True

    async def _write_later(self, keeping: "asyncio.Task[None]", group: Group) -> None:
        try:
            await keeping
        finally:
            keeping.cancel()
        await self._deps.writer.append(self._records.signed([group]))
        self._deps.wake_ups.wake()

    def _wake_up(self) -> None:
        self._deps.wake_ups.call_at(self._number, self._deps.clock.monotonic())

    def _reach(self, decisions: Sequence[Decision]) -> None:
        """The place to die at once an answer is recorded."""
        emitted = (written.event for emit in decisions if isinstance(emit, Emit) for written in emit.events)
        if any(isinstance(event, ApprovalDecided) for event in emitted):
            self._deps.crash.reach("after_approval")

    def _confirm(self, questions: Sequence[Verification]) -> None:
        for one in questions:
            self._reconciler.complete(one, self._partition.folded + 1, partial(self._nothing_changed, one))

    def _nothing_changed(self, asked: Verification) -> None:
        self._partition.nothing_changed(asked.job_id, asked.idempotency_key, self._now())
        self._deps.wake_ups.call_at(self._number, self._deps.clock.monotonic())

    async def _ask(self, questions: Sequence[Verification], job: JobSigners | None) -> None:
        now = self._now()
        await self._deps.writer.append([(self._question(one, job, now),) for one in questions])

    def _now(self) -> Now:
        return Now(self._deps.clock.monotonic(), self._deps.clock.now())


def _lease(grant: Grant) -> Lease:
    return Lease(grant.message.idempotency_key, grant.message.lease_id, grant.lease_ttl_s)
