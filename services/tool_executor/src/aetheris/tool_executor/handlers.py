"""One partition of the executor: grants in, facts out (docs/guarantees.md, "Executor")."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence

import structlog

from aetheris.protocol.base.job_table import Resting
from aetheris.protocol.base.records import Group, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.provenance import Provenance, Standing
from aetheris.protocol.fold.rules import UNREAD
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import JobPlaced, PartitionBarrier, RulesBarrier, ToolGrant
from aetheris.protocol.messages.envelope import (
    BARRIERS,
    Envelope,
    NeedsUpgrade,
    Undecodable,
    decode_event,
    decode_message,
)
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import Kind
from aetheris.protocol.planning.invocation import Blobs
from aetheris.protocol.tables.rules_orders import PartitionRules
from aetheris.protocol.tables.signed_messages import SignedMessages
from aetheris.runtime.base.fresh_ids import fresh_secret
from aetheris.runtime.blobs.store import BlobError
from aetheris.runtime.log.interface import LogUnreachable
from aetheris.runtime.process.withheld import write_all
from aetheris.runtime.telemetry.tracer import Traced
from aetheris.runtime.worker.handler import PartitionHandler
from aetheris.runtime.worker.unjudged import report_unjudged
from aetheris.runtime.worker.unsigned import HeardMessages, orders_read
from aetheris.tool_executor.body_hosts import BodyHosting
from aetheris.tool_executor.core import reports
from aetheris.tool_executor.core.grants import ReceivedGrant
from aetheris.tool_executor.core.partition import Drop, LoadResults, Partition, ReadBack
from aetheris.tool_executor.core.tries import DeclaredInvocation, GrantRun, NodeReport
from aetheris.tool_executor.dependencies import ExecutorDependencies
from aetheris.tool_executor.heartbeat import Watched
from aetheris.tool_executor.performer import InvocationReport, lasts_s, traced

_log = structlog.get_logger(__name__)

_UNREAD = UNREAD | {f"io.aetheris.{ev.NodeFinished.event_type}.v1".encode()}
"""Facts that decide nothing about who may run: they are passed over unparsed."""

_FEW = 4
"""Tries at work, up to which somebody may be waiting for just this one."""

_RETRY_PAUSE_S = 0.2
_TURN_S = 0.02
"""For which grants are judged at a time: a body's may take some milliseconds."""


class ExecutorHandler(PartitionHandler):
    """Declares, reads back, executes, reports."""

    def __init__(self, deps: ExecutorDependencies, partition: int = 0) -> None:
        self._deps = deps
        self._rules = PartitionRules(deps.rules.orders, partition)
        self._provenance = Provenance(deps.installation, deps.revocations, self._rules.refuses)
        own = SignedMessages(deps.installation, deps.revocations)
        self._messages = HeardMessages(own, deps.metrics, deps.rules.orders)
        self._appender = Watched(deps.appender, deps.heartbeat, self, partition)
        self._core = Partition(
            deps.worker,
            lambda call: (deps.workflows if call.entry.node.kind is Kind.WORKFLOW else deps.calls).refuses(call),
            deps.calls.kind,
            deps.unread_tries,
            freezes=deps.freezes.orders,
            activations=deps.policies.orders,
            code_of=deps.workflows.code,
        )
        self._hosting = BodyHosting(deps, self._core, self._appender, self)
        # asked before the log's end is: of what ends while this restores, only the start may be read before `restored`
        self._unended = deps.performer.unended()
        self._verdicts: dict[str, asyncio.Future[bool]] = {}
        self._declaring: set[asyncio.Task[None]] = set()
        self._closing = False
        self._unknown_barriers = 0
        """Barriers whose order was not read when they were."""
        self._asking = False

    def fold(self, records: Sequence[Record]) -> None:
        """History: what of it was declared in this life was withdrawn when the partition was given back."""
        for record in records:
            self._evolve(record)

    def begin(self, start: int, live: Collection[tuple[str, int]] = ()) -> None:
        """A grant that was given below `start` can be judged."""
        self._provenance.begin(start, live)
        self._core.pass_over(start - 1)

    async def learn(self) -> None:
        """An order whose barrier lies below what is read here must be known, or nothing would tell of it."""
        await self._orders_read()

    async def restored(self) -> None:
        """What is open in the log is the ledger's to judge, but what this process knows it never called."""
        self._unknown_barriers = 0
        self._core.orders_known()
        self._report_strays()

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """Fold, start what won, then declare what was granted; appends go on in the background.

        Grants are discharged one by one, when their `started` is acknowledged (see `low_water`).
        """
        records = batch.get(Topic.JOBS_EVENTS, ())
        await orders_read(records, self._deps.rules)
        returned = [reported for record in records if (reported := self._evolve(record)) is not None]
        for reported in returned:
            self._clear(reported)
        self._hosting.follow()
        self._report_strays()
        if self._unknown_barriers and not self._asking:
            self._asking = True
            self._deps.spawn(self._ask_for_orders())
        for record in batch.get(Topic.TOOLS_GRANTS, ()):
            self._receive(record)
        self._take_up()
        if self._core.is_behind():
            self._deps.wake()

    def live(self) -> Iterable[tuple[str, int]]:
        """The live jobs."""
        yield from self._core.live()
        yield from self._rules.needed()

    def rest(self) -> Resting:
        """Jobs rest that nobody has asked for in a while."""
        return self._core.rest()

    def rest_on_the_way(self) -> None:
        """So they do while history is read: nothing is done to all of them when it is."""
        self._core.jobs.rest_on_the_way()

    def low_water(self, topic: str) -> int | None:
        """The oldest grant whose `started` is not acknowledged."""
        return self._core.low_water() if topic == Topic.TOOLS_GRANTS else None

    async def close(self) -> None:
        """Take nothing more; what was declared and will not run is reported so, what runs goes on and reports."""
        self._closing = True
        for taken in self._core.abandon():
            self._let_go(taken)
        withdrawn: list[DeclaredInvocation] = []
        try:
            await self._hosting.close()
            if self._declaring:  # its own `started` must lie before what is said of a try
                await asyncio.wait(self._declaring)
            withdrawn = self._core.withdraw()
            why = "the executor stopped before it"
            await self._append([self._unexecuted(invocation, why) for invocation in withdrawn])
        finally:
            for invocation in (*withdrawn, *self._core.withdraw()):
                self._answer_run(invocation, won=False)
            self._deps.performer.thin(list(self._core.jobs))

    async def _ask_for_orders(self) -> None:
        """An order lies in its topic before its barrier is written: what is not there now, nobody has ordered."""
        while self._unknown_barriers and not self._closing:
            heard = self._unknown_barriers
            try:
                await self._orders_read()
            except LogUnreachable as error:
                _log.warning("orders of barriers are not known yet", error=str(error))
                await asyncio.sleep(_RETRY_PAUSE_S)
                continue
            if heard == self._unknown_barriers:  # else one was heard since the end of the topic was asked for
                self._unknown_barriers = 0
                self._core.orders_known()
        self._asking = False

    async def _orders_read(self) -> None:
        await self._deps.freezes.caught_up()
        await self._deps.policies.caught_up()

    def _evolve(self, record: Record) -> ReadBack | None:
        if record.header("ce_type") in BARRIERS:
            self._pass(self._messages.barrier(record), record.offset)
            return None
        try:
            decoded = decode_event(record, _UNREAD)
        except Undecodable:  # another service quarantines it
            decoded = None
        if isinstance(decoded, Envelope):
            if (standing := self._provenance.judge(record, decoded.body)) is not Standing.COUNTS:
                return self._set_aside(decoded.body.job_id, record.offset, standing)
            if isinstance(decoded.body, ev.WorkerEnded) and self._is_own(decoded.body):
                self._deps.stand_down(decoded.body.how)
            if isinstance(decoded.body, ev.JobSealed):
                self._deps.performer.begun.pop(decoded.body.job_id, None)
            returned = self._core.evolve(decoded.body, record.offset)
            report_unjudged(self._core.unjudged, self._deps.metrics)
            return returned
        if isinstance(decoded, NeedsUpgrade):
            self._core.needs_upgrade(decoded.job_id, record.offset, is_birth=decoded.is_creation)
        else:
            self._core.pass_over(record.offset)
        return None

    def _pass(self, barrier: PartitionBarrier | None, offset: int) -> None:
        if isinstance(barrier, RulesBarrier):
            self._rules.passed(barrier, offset)
        elif isinstance(barrier, JobPlaced):
            self._rules.placed(barrier)
        self._unknown_barriers += barrier is not None and not self._core.passed(barrier, offset)
        self._core.pass_over(offset)

    def _set_aside(self, job_id: str, offset: int, standing: Standing) -> None:
        """What its writer has not signed changes nothing; a job under a root that is not known here waits."""
        if standing is Standing.UNKNOWN_ROOT:
            _log.warning("a job waits: AETHERIS_INSTALLATION does not name its root", job_id=job_id, offset=offset)
            self._core.needs_upgrade(job_id, offset, is_birth=True)
        else:
            self._core.pass_over(offset)

    def _is_own(self, end: ev.WorkerEnded) -> bool:
        """Of a job that is known here: what is said in any other, nobody has judged."""
        if end.job_id not in self._core.jobs:
            return False
        return (end.worker_id, end.incarnation) == (self._deps.worker.worker_id, self._deps.worker.incarnation)

    def _receive(self, record: Record) -> None:
        try:
            decoded = decode_message(record)
        except Undecodable as error:
            self._deps.quarantine(record, str(error))
            return
        if not isinstance(decoded, Envelope) or not isinstance(decoded.body, ToolGrant):
            return
        if decoded.body.pool not in (None, self._deps.pool):
            return
        taken = ReceivedGrant(decoded.body, decoded.id, record.offset, record.header("traceparent"))
        self._deps.heartbeat.hold(taken.grant.idempotency_key, taken.grant.lease_id, self)
        self._core.receive(taken)

    def _take_up(self) -> None:
        """Judge the grants that are due, as far as there are slots, for a while; all are declared by one append."""
        invocations: list[DeclaredInvocation] = []
        clock = asyncio.get_running_loop().time
        until_s = clock() + _TURN_S
        while (taken := self._next_with_slot()) is not None:
            verdict = self._core.judge(taken, fresh_secret())
            if isinstance(verdict, LoadResults):
                self._deps.spawn(self._load_and_judge(taken, verdict))
            else:
                self._sort(taken, verdict, invocations)
            if clock() >= until_s:
                self._deps.spawn(self._take_up_more())
                break
        if invocations:
            declaring = self._deps.spawn(self._declare(invocations))
            self._declaring.add(declaring)
            declaring.add_done_callback(self._declaring.discard)

    async def _take_up_more(self) -> None:
        """The process has had other things to do meanwhile, such as to say that it lives."""
        self._take_up()

    def _next_with_slot(self) -> ReceivedGrant | None:
        if self._closing or not self._core.is_due():
            return None
        taken = self._core.next_grant(self._deps.slots.may_take)
        if taken is None:
            self._deps.slots.wait(self._take_up)
        else:
            self._deps.slots.take(taken.tenant)
        return taken

    def _sort(
        self, taken: ReceivedGrant, verdict: DeclaredInvocation | Drop, invocations: list[DeclaredInvocation]
    ) -> None:
        self._deps.outdated.judged(taken.grant, verdict)
        if isinstance(verdict, DeclaredInvocation):
            invocations.append(verdict)
            return
        _log.info("grant dropped", reason=verdict.reason, job_id=taken.grant.job_id)
        self._core.discharge(taken)
        self._let_go(taken)
        self._deps.slots.release(taken.tenant)

    async def _load_and_judge(self, taken: ReceivedGrant, load: LoadResults) -> None:
        """A call that large results go into; what can't be loaded can't be called."""
        blobs: Blobs = {}
        verdict: DeclaredInvocation | LoadResults | Drop = load
        while isinstance(verdict, LoadResults):
            try:
                blobs = {**blobs, **await self._deps.performer.load(verdict.refs)}
            except BlobError as error:
                verdict = Drop(type(error).__name__)
            else:
                verdict = self._judge_unless_closing(taken, blobs)
        invocations: list[DeclaredInvocation] = []
        self._sort(taken, verdict, invocations)
        if invocations:
            await self._declare(invocations)

    def _judge_unless_closing(self, taken: ReceivedGrant, blobs: Blobs) -> DeclaredInvocation | LoadResults | Drop:
        if self._closing:
            return Drop("the partition was revoked")
        return self._core.judge(taken, fresh_secret(), blobs)

    async def _declare(self, invocations: Sequence[DeclaredInvocation]) -> None:
        for invocation in invocations:
            self._deps.crash.reach("before_started", invocation.started.tool_name)
        groups = [self._declaration(invocation) for invocation in invocations]
        refused = [one.group for one in await write_all(self._appender, groups)]
        if self._deps.crash.armed:
            for invocation in invocations:
                await self._deps.crash.unobserved(invocation.started.tool_name)
        for invocation, group in zip(invocations, groups, strict=True):
            self._core.discharge(invocation.run.taken)
            if group in refused:
                _log.error(
                    "a try can't be declared", job_id=invocation.started.job_id, node_id=invocation.started.node_id
                )
                self._core.unclaim(invocation)
                self._end(invocation)
            elif invocation.refusal is not None:
                self._end(invocation)

    def _declaration(self, invocation: DeclaredInvocation) -> Group:
        """`started`, and where the call is refused, its end in the same group: nothing is reported unstarted."""
        events: list[Event] = [invocation.started]
        if invocation.refusal is not None:
            events.append(reports.refused(invocation, invocation.refusal))
        return self._deps.scribe.write(traced(invocation), events)

    def _clear(self, reported: ReadBack) -> None:
        """Run what won, unless a record that has come with it forbids that: a reopen, or one that can't be read."""
        invocation = reported.invocation
        if self._deps.crash.armed:
            self._deps.crash.reach("after_started", invocation.started.tool_name)
        reason = self._core.why_not(invocation) if reported.won else None
        if reason is not None:
            self._deps.spawn(self._append([self._unexecuted(invocation, reason)]))
        self._answer_run(invocation, won=reported.won and reason is None)

    def _report_strays(self) -> None:
        """Of a try whose `started` came when nobody waited for it any more, as after a rebalance: it is not called."""
        for job, started, words in self._core.strays(self._deps.performer.begun, self._unended):
            subject = Traced(started.job_id, started.idempotency_key, job.trace)
            event = reports.not_executed(started, words, "its partition was given back before the call")
            self._deps.spawn(self._append([self._deps.scribe.write(subject, [event])]))

    def _answer_run(self, invocation: DeclaredInvocation, *, won: bool) -> None:
        """To the run that waits for it; the first of a run has nobody waiting yet."""
        if won:
            self._deps.performer.begin(invocation)
            if invocation.call_words is not None:
                self._deps.slots.release(invocation.run.taken.tenant)  # it waits for calls that need some
                self._hosting.begin(invocation)
                return
        waiting = self._verdicts.pop(invocation.invocation_id, None)
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(won)
        elif won:
            self._deps.spawn(self._run(invocation))
        else:
            self._end(invocation)

    async def _run(self, first: DeclaredInvocation) -> None:
        """The nodes of a run, one after the other, each only after its `started` won."""
        invocation, rung = first, False
        going_on: bool | None = True
        while going_on:
            self._deps.heartbeat.begin(
                invocation.started.idempotency_key, invocation.run.taken.grant.lease_id, lasts_s(invocation)
            )
            report = await self._deps.performer.perform(invocation)
            following = await self._following(invocation.run, report.node_report)
            # drafted before the effect is kept: then the log is all that the run waits for
            declared = (*report.drafts, *self._declaration(following)) if following is not None else ()
            rung = following is None and await self._hosting.told(invocation, report)
            await self._deps.performer.keep(invocation, report)
            if following is None or self._closing:
                if rung:
                    self._reported(invocation, report)
                else:
                    rung = self._wake_up(_FEW)
                    await self._report(invocation, report)
                self._deps.crash.reach("after_append", invocation.started.tool_name)
                break
            going_on = await self._hand_on(declared, invocation, following)
            if going_on is None:
                await self._report(invocation, report)
                break
            self._reported(invocation, report)
            invocation = following
        self._end(invocation)
        if not rung:
            self._wake_up(0)

    def _wake_up(self, at_work: int) -> bool:
        """Where no more than so many are at work: among many, what comes of a run is read with others soon enough.

        Few: the planner is there before the last record is. None: nobody else will wake it for the last of many.
        """
        if self._deps.slots.taken > at_work:
            return False
        self._deps.wake_up.send("planner")
        return True

    async def _following(self, run: GrantRun, logged: NodeReport | None) -> DeclaredInvocation | None:
        """The next try of the run, with what this one returned."""
        if logged is None:
            return None
        run.reports[run.taken.grant.nodes[run.place]] = logged
        blobs: Blobs = {}
        while not self._closing:
            found = self._core.follow(run, fresh_secret(), blobs)
            if not isinstance(found, LoadResults):
                return found
            try:
                blobs = {**blobs, **await self._deps.performer.load(found.refs)}
            except BlobError:
                return None
        return None

    async def _report(self, invocation: DeclaredInvocation, report: InvocationReport) -> None:
        """Append what a try came to; where the brokers will not have it, something shorter, and at last only doubt."""
        if not await write_all(self._appender, [report.drafts]):
            self._reported(invocation, report)
            return
        _log.error("a report is refused", job_id=invocation.started.job_id, node_id=invocation.started.node_id)
        brief = await self._deps.performer.brief(invocation, report)
        if brief is not None:
            await self._deps.performer.keep(invocation, brief)
            if not await write_all(self._appender, [brief.drafts]):
                self._reported(invocation, brief)
                return
        await self._append([self._deps.performer.unreported(invocation)])

    def _reported(self, invocation: DeclaredInvocation, report: InvocationReport) -> None:
        self._deps.performer.ended(invocation, report)
        if self._closing:
            self._deps.performer.thin((invocation.started.job_id,))

    async def _hand_on(
        self, declared: Group, invocation: DeclaredInvocation, following: DeclaredInvocation
    ) -> bool | None:
        """Append a try's report and the next one's `started`, one group; whether that won, None where it is refused."""
        self._deps.crash.reach("before_started", following.started.tool_name)
        won: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._verdicts[following.invocation_id] = won
        self._core.claim(following)
        grant, key = invocation.run.taken.grant, invocation.started.idempotency_key
        self._deps.heartbeat.hold(following.started.idempotency_key, grant.lease_id, self)
        if await write_all(self._appender, [declared]):
            self._core.unclaim(following)
            del self._verdicts[following.invocation_id]
            self._deps.heartbeat.let_go(following.started.idempotency_key, grant.lease_id)
            return None
        if self._deps.crash.armed:
            await self._deps.crash.unobserved(following.started.tool_name)
        self._deps.crash.reach("after_append", invocation.started.tool_name)
        self._deps.crash.reach("between_nodes", following.started.tool_name)
        self._deps.heartbeat.let_go(key, grant.lease_id)
        return await won

    def _unexecuted(self, invocation: DeclaredInvocation, reason: str) -> Group:
        event = reports.not_executed(invocation.started, invocation.words, reason)
        return self._deps.scribe.write(traced(invocation), [event])

    async def _append(self, groups: Sequence[Group]) -> None:
        if groups:
            with self._deps.heartbeat.appending(self):
                await self._deps.withheld.append(groups)

    def _end(self, invocation: DeclaredInvocation) -> None:
        """A grant is done with."""
        self._deps.heartbeat.let_go(invocation.started.idempotency_key, invocation.run.taken.grant.lease_id)
        self._deps.slots.release(invocation.run.taken.tenant)

    def _let_go(self, taken: ReceivedGrant) -> None:
        self._deps.heartbeat.let_go(taken.grant.idempotency_key, taken.grant.lease_id)
