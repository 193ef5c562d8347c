"""One partition of the executor: grants in, facts out (docs/guarantees.md, "Executor")."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from aetheris.protocol.base.records import Group, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.rules import UNREAD
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import ToolGrant
from aetheris.protocol.messages.envelope import Envelope, NeedsUpgrade, Undecodable, decode_event, decode_message
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.invocation import Blobs
from aetheris.runtime.base.ids import fresh_nonce
from aetheris.runtime.blobs.store import BlobError
from aetheris.runtime.log.interface import Writer
from aetheris.runtime.process.crash import CrashPoints
from aetheris.runtime.process.withheld import Withheld, write_all
from aetheris.runtime.redis.bell import Bell
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.runtime.telemetry.tracer import Traced
from aetheris.runtime.worker.handler import PartitionHandler
from aetheris.runtime.worker.unjudged import tell_unjudged
from aetheris.tool_executor.core import reports
from aetheris.tool_executor.core.partition import Drop, Load, Partition, ReadBack, Run, Taken, Told, Try, Worker
from aetheris.tool_executor.heartbeat import Heartbeat, Watched
from aetheris.tool_executor.identity import exit_at_once
from aetheris.tool_executor.performing import Performer, Report, Scribe, lasts_s, traced
from aetheris.tool_executor.slots import Slots
from aetheris.tool_executor.tools import Calls

_log = structlog.get_logger(__name__)

_UNREAD = UNREAD | {f"io.aetheris.{ev.NodeFinished.event_type}.v1".encode()}
"""Facts that decide nothing about who may run: they are passed over unparsed."""

_FEW = 4
"""Tries at work, up to which somebody may be waiting for just this one."""

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Starts a task that outlives its partition: a running tool isn't cancelled by a rebalance."""


@dataclass(frozen=True)
class Parts:
    """What the partitions of one executor share."""

    worker: Worker
    appender: Writer
    withheld: Withheld
    calls: Calls
    performer: Performer
    scribe: Scribe
    metrics: Metrics
    slots: Slots
    heartbeat: Heartbeat
    crash: CrashPoints
    bell: Bell
    spawn: Spawn
    quarantine: Callable[[Record, str], None]
    wake: Callable[[], None]
    """Reads the authority at once."""
    stand_down: Callable[[str], None] = exit_at_once
    """Ends this process: the log says that its incarnation has ended."""


class ExecutorHandler(PartitionHandler):
    """Declares, reads back, executes, reports."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._appender = Watched(parts.appender, parts.heartbeat, self)
        self._core = Partition(parts.worker, parts.calls.refuses, parts.calls.kind)
        self._verdicts: dict[str, asyncio.Future[bool]] = {}
        self._declaring: set[asyncio.Task[None]] = set()
        self._closing = False

    def fold(self, records: Sequence[Record]) -> None:
        """History: what of it was declared in this life was withdrawn when the partition was given back."""
        for record in records:
            self._evolve(record)

    def begin(self, start: int) -> None:
        """A grant that was given below `start` can be judged."""
        self._core.pass_over(start - 1)

    async def restored(self) -> None:
        """What is open in the log is the ledger's to judge, but what this process knows it never called."""
        self._report_strays()

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """Fold, start what won, then declare what was granted; appends go on in the background.

        Grants are discharged one by one, when their `started` is acknowledged (see `low_water`).
        """
        returned = [told for record in batch.get(Topic.JOBS_EVENTS, ()) if (told := self._evolve(record)) is not None]
        for told in returned:
            self._clear(told)
        self._report_strays()
        for record in batch.get(Topic.TOOLS_GRANTS, ()):
            self._receive(record)
        self._take_up()
        if self._core.is_behind():
            self._parts.wake()

    def live(self) -> Iterable[tuple[str, int]]:
        """The live jobs."""
        return self._core.live()

    def low_water(self, topic: str) -> int | None:  # noqa: ARG002  there is one command topic
        """The oldest grant whose `started` is not acknowledged."""
        return self._core.low_water()

    async def close(self) -> None:
        """Take nothing more; what was declared and will not run is reported so, what runs goes on and reports."""
        self._closing = True
        for taken in self._core.abandon():
            self._let_go(taken)
        withdrawn: list[Try] = []
        try:
            if self._declaring:  # its own `started` must lie before what is said of a try
                await asyncio.wait(self._declaring)
            withdrawn = self._core.withdraw()
            await self._append([self._unexecuted(tried, "the executor stopped before it") for tried in withdrawn])
        finally:
            for tried in (*withdrawn, *self._core.withdraw()):
                self._say(tried, won=False)
            self._parts.performer.thin(list(self._core.jobs))

    def _evolve(self, record: Record) -> ReadBack | None:
        try:
            decoded = decode_event(record, _UNREAD)
        except Undecodable:  # another service quarantines it
            decoded = None
        if isinstance(decoded, Envelope):
            if isinstance(decoded.body, ev.WorkerEnded) and self._is_own(decoded.body):
                self._parts.stand_down(decoded.body.how)
            if isinstance(decoded.body, ev.JobSealed):
                self._parts.performer.begun.pop(decoded.body.job_id, None)
            returned = self._core.evolve(decoded.body, record.offset)
            tell_unjudged(self._core.unjudged, self._parts.metrics)
            return returned
        if isinstance(decoded, NeedsUpgrade):
            self._core.needs_upgrade(decoded.job_id, record.offset, is_birth=decoded.is_birth)
        else:
            self._core.pass_over(record.offset)
        return None

    def _is_own(self, end: ev.WorkerEnded) -> bool:
        return (end.worker_id, end.incarnation) == (self._parts.worker.worker_id, self._parts.worker.incarnation)

    def _receive(self, record: Record) -> None:
        try:
            decoded = decode_message(record)
        except Undecodable as error:
            self._parts.quarantine(record, str(error))
            return
        if not isinstance(decoded, Envelope) or not isinstance(decoded.body, ToolGrant):
            return
        taken = Taken(decoded.body, decoded.id, record.offset, record.header("traceparent"))
        self._parts.heartbeat.hold(taken.grant.idempotency_key, taken.grant.lease_id, self)
        self._core.receive(taken)

    def _take_up(self) -> None:
        """Judge the grants that are due, as far as there are slots; all of them are declared by one append."""
        tries: list[Try] = []
        while (taken := self._next_with_slot()) is not None:
            verdict = self._core.judge(taken, fresh_nonce())
            if isinstance(verdict, Load):
                self._parts.spawn(self._load_and_judge(taken, verdict))
            else:
                self._sort(taken, verdict, tries)
        if tries:
            declaring = self._parts.spawn(self._declare(tries))
            self._declaring.add(declaring)
            declaring.add_done_callback(self._declaring.discard)

    def _next_with_slot(self) -> Taken | None:
        if self._closing or not self._core.is_due() or not self._parts.slots.take(self._take_up):
            return None
        return self._core.next_grant()

    def _sort(self, taken: Taken, verdict: Try | Drop, tries: list[Try]) -> None:
        if isinstance(verdict, Try):
            tries.append(verdict)
            return
        _log.info("grant dropped", reason=verdict.reason, job_id=taken.grant.job_id)
        self._core.discharge(taken)
        self._let_go(taken)
        self._parts.slots.release()

    async def _load_and_judge(self, taken: Taken, load: Load) -> None:
        """A call that large results go into; what can't be loaded can't be called."""
        blobs: Blobs = {}
        verdict: Try | Load | Drop = load
        while isinstance(verdict, Load):
            try:
                blobs = {**blobs, **await self._parts.performer.load(verdict.refs)}
            except BlobError as error:
                verdict = Drop(type(error).__name__)
            else:
                verdict = self._judge_unless_closing(taken, blobs)
        tries: list[Try] = []
        self._sort(taken, verdict, tries)
        if tries:
            await self._declare(tries)

    def _judge_unless_closing(self, taken: Taken, blobs: Blobs) -> Try | Load | Drop:
        if self._closing:
            return Drop("the partition was revoked")
        return self._core.judge(taken, fresh_nonce(), blobs)

    async def _declare(self, tries: Sequence[Try]) -> None:
        for tried in tries:
            self._parts.crash.reach("before_started", tried.started.tool_name)
        groups = [self._declaration(tried) for tried in tries]
        refused = [one.group for one in await write_all(self._appender, groups)]
        if self._parts.crash.armed:
            for tried in tries:
                await self._parts.crash.unheard(tried.started.tool_name)
        for tried, group in zip(tries, groups, strict=True):
            self._core.discharge(tried.run.taken)
            if group in refused:
                _log.error("a try can't be declared", job_id=tried.started.job_id, node_id=tried.started.node_id)
                self._core.unclaim(tried)
                self._end(tried)
            elif tried.refusal is not None:
                self._end(tried)

    def _declaration(self, tried: Try) -> Group:
        """`started`, and where the call is refused, its end in the same group: nothing is reported unstarted."""
        events: list[Event] = [tried.started]
        if tried.refusal is not None:
            events.append(reports.failed(tried.started, tried.refusal.outcome, tried.refusal.error))
        return self._parts.scribe.write(traced(tried), events)

    def _clear(self, told: ReadBack) -> None:
        """Run what won, unless a record that has come with it forbids that: a reopen, or one that can't be read."""
        tried = told.tried
        if self._parts.crash.armed:
            self._parts.crash.reach("after_started", tried.started.tool_name)
        reason = self._core.why_not(tried) if told.won else None
        if reason is not None:
            self._parts.spawn(self._append([self._unexecuted(tried, reason)]))
        self._say(tried, won=told.won and reason is None)

    def _report_strays(self) -> None:
        """Of a try whose `started` came when nobody waited for it any more, as after a rebalance: it is not called."""
        for job, started in self._core.strays(self._parts.performer.begun):
            of = Traced(started.job_id, started.idempotency_key, job.trace)
            said = reports.not_executed(started, "its partition was given back before the call")
            self._parts.spawn(self._append([self._parts.scribe.write(of, [said])]))

    def _say(self, tried: Try, *, won: bool) -> None:
        """To the run that waits for it; the first of a run has nobody waiting yet."""
        if won:
            self._parts.performer.begin(tried)
        waiting = self._verdicts.pop(tried.nonce, None)
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(won)
        elif won:
            self._parts.spawn(self._run(tried))
        else:
            self._end(tried)

    async def _run(self, first: Try) -> None:
        """The nodes of a run, one after the other, each only after its `started` won."""
        tried, rung = first, False
        going_on: bool | None = True
        while going_on:
            self._parts.heartbeat.begin(tried.started.idempotency_key, tried.run.taken.grant.lease_id, lasts_s(tried))
            report = await self._parts.performer.perform(tried)
            following = await self._following(tried.run, report.told)
            # drafted before the effect is kept: then the log is all that the run waits for
            declared = (*report.drafts, *self._declaration(following)) if following is not None else ()
            await self._parts.performer.keep(tried, report)
            if following is None or self._closing:
                rung = self._ring(_FEW)
                await self._report(tried, report)
                self._parts.crash.reach("after_append", tried.started.tool_name)
                break
            going_on = await self._hand_on(declared, tried, following)
            if going_on is None:
                await self._report(tried, report)
                break
            self._reported(tried, report)
            tried = following
        self._end(tried)
        if not rung:
            self._ring(0)

    def _ring(self, at_work: int) -> bool:
        """Where no more than so many are at work: among many, what comes of a run is read with others soon enough.

        Few: the planner is there before the last record is. None: nobody else will wake it for the last of many.
        """
        if self._parts.slots.taken > at_work:
            return False
        self._parts.bell.ring("planner")
        return True

    async def _following(self, run: Run, told: Told | None) -> Try | None:
        """The next try of the run, with what this one returned."""
        if told is None:
            return None
        run.told[run.taken.grant.nodes[run.place]] = told
        blobs: Blobs = {}
        while not self._closing:
            found = self._core.follow(run, fresh_nonce(), blobs)
            if not isinstance(found, Load):
                return found
            try:
                blobs = {**blobs, **await self._parts.performer.load(found.refs)}
            except BlobError:
                return None
        return None

    async def _report(self, tried: Try, report: Report) -> None:
        """Append what a try came to; where the brokers will not have it, something shorter, and at last only doubt."""
        if not await write_all(self._appender, [report.drafts]):
            self._reported(tried, report)
            return
        _log.error("a report is refused", job_id=tried.started.job_id, node_id=tried.started.node_id)
        brief = await self._parts.performer.brief(tried, report)
        if brief is not None:
            await self._parts.performer.keep(tried, brief)
            if not await write_all(self._appender, [brief.drafts]):
                self._reported(tried, brief)
                return
        await self._append([self._parts.performer.unreported(tried)])

    def _reported(self, tried: Try, report: Report) -> None:
        self._parts.performer.ended(tried, report)
        if self._closing:
            self._parts.performer.thin((tried.started.job_id,))

    async def _hand_on(self, declared: Group, tried: Try, following: Try) -> bool | None:
        """Append a try's report and the next one's `started`, one group; whether that won, None where it is refused."""
        self._parts.crash.reach("before_started", following.started.tool_name)
        won: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._verdicts[following.nonce] = won
        self._core.claim(following)
        grant, key = tried.run.taken.grant, tried.started.idempotency_key
        self._parts.heartbeat.hold(following.started.idempotency_key, grant.lease_id, self)
        if await write_all(self._appender, [declared]):
            self._core.unclaim(following)
            del self._verdicts[following.nonce]
            self._parts.heartbeat.let_go(following.started.idempotency_key, grant.lease_id)
            return None
        if self._parts.crash.armed:
            await self._parts.crash.unheard(following.started.tool_name)
        self._parts.crash.reach("after_append", tried.started.tool_name)
        self._parts.crash.reach("between_nodes", following.started.tool_name)
        self._parts.heartbeat.let_go(key, grant.lease_id)
        return await won

    def _unexecuted(self, tried: Try, reason: str) -> Group:
        return self._parts.scribe.write(traced(tried), [reports.not_executed(tried.started, reason)])

    async def _append(self, groups: Sequence[Group]) -> None:
        if groups:
            with self._parts.heartbeat.appending(self):
                await self._parts.withheld.append(groups)

    def _end(self, tried: Try) -> None:
        """A grant is done with."""
        self._parts.heartbeat.let_go(tried.started.idempotency_key, tried.run.taken.grant.lease_id)
        self._parts.slots.release()

    def _let_go(self, taken: Taken) -> None:
        self._parts.heartbeat.let_go(taken.grant.idempotency_key, taken.grant.lease_id)
