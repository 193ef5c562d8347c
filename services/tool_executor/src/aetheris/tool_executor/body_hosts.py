"""The bodies of one partition's workflows, run: what they plan is appended, what the log says is told to them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import structlog

from aetheris.protocol.base.records import Group
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.event_values import After, BlobRef
from aetheris.protocol.plan.graph import LOCAL_TOOLS, Node
from aetheris.protocol.planning.invocation import Blobs
from aetheris.runtime.base.fresh_ids import fresh_secret
from aetheris.runtime.blobs.store import BlobError
from aetheris.runtime.log.interface import Writer
from aetheris.runtime.process.withheld import write_all
from aetheris.sdk.outcomes import Permanent, Succeeded
from aetheris.sdk.workflows.bodies import Asked, BodyRaised, BodySaid, CallSettled, Idle, Lost, Returned
from aetheris.tool_executor.core import reports
from aetheris.tool_executor.core.body_runs import USED_UP, BodyOutcome, EndStep, RunningBody, Stop
from aetheris.tool_executor.core.partition import CallNotPlanned, Partition
from aetheris.tool_executor.core.tries import DeclaredInvocation
from aetheris.tool_executor.dependencies import ExecutorDependencies
from aetheris.tool_executor.performer import InvocationReport, traced
from aetheris.tool_executor.workflows import RunsBodies

_log = structlog.get_logger(__name__)

TOGETHER_S = 0.02
"""So long what a call has come to waits at most for what its body plans next, which goes into the same append."""
_BLOB_PAUSE_S = 1.0


@dataclass(slots=True)
class _Deferred:
    """A call's report of which its body was told, and which is not appended yet."""

    invocation: DeclaredInvocation
    report: InvocationReport
    written: asyncio.Future[bool]


class BodyHosting:
    """The bodies that run here, of one partition."""

    def __init__(self, deps: ExecutorDependencies, core: Partition, appender: Writer, place: object) -> None:
        """`place`: the partition, as the heartbeat knows it."""
        self.deps = deps
        self.core = core
        self.appender = appender
        self.place = place
        self.closing = False
        self._bodies: dict[str, _HostedBody] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, invocation: DeclaredInvocation) -> None:
        """Its `started` has won: its code runs from here on."""
        body = _HostedBody(self, invocation)
        self._bodies[invocation.invocation_id] = body
        task = self.deps.spawn(self._run(body, invocation))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def follow(self) -> None:
        """Something was read: whoever has something to do for it does it."""
        for run in self.core.bodies.moved():
            body = self._bodies.get(run.invocation_id)
            if body is not None and (run.news or run.over is not None):
                body.wake.set()

    async def told(self, invocation: DeclaredInvocation, report: InvocationReport) -> bool:
        """Whether a call's report was appended here, together with what its body has planned upon it.

        Its body is told while the call's effect is being kept; nothing of either is appended before it is.
        """
        job = self.core.jobs.get(invocation.started.job_id)
        run = self.core.bodies.of_call(job, invocation.started.node_id) if job is not None else None
        body = self._bodies.get(run.invocation_id) if run is not None else None
        if body is None or run is None or report.node_report is None or self.closing:
            return False
        if not run.may_be_told_early(invocation.started.node_id):
            return False
        return await body.tell_early(invocation, report)

    async def close(self) -> None:
        """The partition is given back: each body stops, says so, and is begun anew elsewhere."""
        self.closing = True
        for body in self._bodies.values():
            body.revoke()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, body: "_HostedBody", invocation: DeclaredInvocation) -> None:
        try:
            await body.work()
        finally:
            started = invocation.started
            self.deps.workflows.listen(invocation.invocation_id, None)
            self.core.bodies.forget(invocation)
            del self._bodies[invocation.invocation_id]
            self.deps.performer.ended(invocation, InvocationReport(()))
            self.deps.heartbeat.let_go(started.idempotency_key, invocation.run.taken.grant.lease_id)


class _HostedBody:
    """One body: everything that it does outside goes through its one task."""

    def __init__(self, hosting: BodyHosting, invocation: DeclaredInvocation) -> None:
        self.wake = asyncio.Event()
        self._hosting = hosting
        self._deps = hosting.deps
        self._core = hosting.core
        self._invocation = invocation
        self._host: RunsBodies = hosting.deps.workflows.host_of(invocation.call)
        self._run: RunningBody | None = None
        self._deferred: list[_Deferred] = []
        self._is_due = False
        """Whether what is deferred waits no longer."""
        self._waiting: asyncio.TimerHandle | None = None
        """Until then what is deferred waits."""
        self._falling_asleep: asyncio.TimerHandle | None = None
        self._runs_there = True
        """Whether its code may still run."""
        self._is_at_rest = False
        """Whether its code waits, and has been told all that it was given: it has asked for what it is told next."""

    def revoke(self) -> None:
        """It must stop, and be begun anew elsewhere."""
        if self._run is not None:
            self._run.ends(BodyOutcome(stop=Stop.REVOKED))
        self.wake.set()

    async def work(self) -> None:
        """Until what it came to is in the log, or nobody wants to know any more."""
        job = self._job
        if job is None:
            return
        run, history = self._core.bodies.begin(job, self._invocation)
        self._run = run
        if self._hosting.closing:
            run.ends(BodyOutcome(stop=Stop.REVOKED))
        if run.over is None:
            await self._begin(run, job, history)
        is_over = False
        while not is_over:
            if run.over is None:
                await self._tell(run)
                await self._append(run)
            is_over = await self._ended(run)
            if not is_over and not self.wake.is_set():
                await self.wake.wait()
            self.wake.clear()

    async def tell_early(self, invocation: DeclaredInvocation, report: InvocationReport) -> bool:
        """The one thing that it waits for has come to this; the log is told with what follows from it, or soon."""
        run, logged = self._run, report.node_report
        if run is None or logged is None:
            return False
        node_id = invocation.started.node_id
        run.told_early(node_id, After(invocation_id=logged.invocation_id, result_hash=logged.result_hash))
        loop = asyncio.get_running_loop()
        one = _Deferred(invocation, report, loop.create_future())
        self._deferred.append(one)
        if self._waiting is None:
            self._waiting = loop.call_later(TOGETHER_S, self._wait_no_longer)
        self._is_at_rest = False
        external_id = report.outcome.external_id if report.outcome is not None else None
        settled = CallSettled(
            node_id=node_id, outcome="success", sure=False, result=logged.result, external_id=external_id
        )
        self._host.settled(run.invocation_id, [settled])
        return await one.written

    def _wait_no_longer(self) -> None:
        self._is_due = True
        self.wake.set()

    @property
    def _job(self) -> JobState | None:
        return self._core.jobs.get(self._invocation.started.job_id)

    async def _begin(self, run: RunningBody, job: JobState, history: Sequence[str]) -> None:
        started = self._invocation.started
        start = self._core.bodies.start_of(job, self._invocation)
        first = self._before_large(job, history)
        run.news[:0] = history[len(first) :]
        settled = [await self._settlement(run, job, node_id) for node_id in first]
        self._deps.workflows.listen(started.invocation_id, self._heard)
        try:
            await self._host.begin(start, settled)
        except Exception as error:  # noqa: BLE001 - a body that can't begin here may begin elsewhere
            _log.warning("a body can't begin", job_id=started.job_id, error=type(error).__name__)
            self._ends(BodyOutcome(stop=Stop.LOST))

    def _heard(self, said: BodySaid) -> None:
        """In the loop, in the order in which the body says it."""
        run, job = self._run, self._job
        if run is None or job is None:
            return
        if self._falling_asleep is not None:
            self._falling_asleep.cancel()
        match said:
            case Asked(node=node, by_reference=by_reference, from_log=from_log):
                if node.get("tool") in LOCAL_TOOLS:
                    self._deps.workflows.local_asked(job.job_id, node["id"], self._host, run.invocation_id)
                run.asks(job, node, by_reference=by_reference, from_log=from_log)
            case Idle(waits_for=awaited):
                self._is_at_rest = True
                run.idles(awaited)
                self._is_due = bool(self._deferred)  # it plans nothing more upon what it was told
                self._watch_idle()
            case Returned(result=result):
                self._runs_there = False
                run.ends(BodyOutcome(result=result))
            case BodyRaised(error_class=error_class, text=text):
                self._runs_there = False
                run.ends(BodyOutcome(error=f"{error_class}: {text}" if text else error_class))
            case Lost(why=why, at_fault=at_fault):
                self._runs_there = False
                _log.warning("a body is lost", job_id=job.job_id, node_id=run.parent, why=why, at_fault=at_fault)
                run.ends(BodyOutcome(stop=Stop.LOST, reason=why))
        self.wake.set()

    def _watch_idle(self) -> None:
        loop = asyncio.get_running_loop()
        self._falling_asleep = loop.call_later(self._deps.workflows.idle_s, self._fall_asleep)

    def _fall_asleep(self) -> None:
        if self._run is not None:
            self._run.sleeps()
            if self._run.over is None:  # not all that it has said is in the log yet, or its own function runs
                self._watch_idle()
        self.wake.set()

    def _ends(self, outcome: BodyOutcome) -> None:
        if self._run is not None:
            self._run.ends(outcome)
        self.wake.set()

    async def _tell(self, run: RunningBody) -> None:
        """What has settled, in the order of the log."""
        while run.news and run.over is None:
            job = self._job
            if job is None:
                return
            names = self._before_large(job, run.news) or (run.news[:1] if self._is_at_rest else [])
            if not names:
                return  # until it is at rest
            run.news = run.news[len(names) :]
            settled = [await self._settlement(run, job, name) for name in names]
            self._is_at_rest = False
            self._host.settled(run.invocation_id, settled)

    def _before_large(self, job: JobState, names: Sequence[str]) -> list[str]:
        """Those before the first large result: of that one it must be known whether the body reads it."""
        bodies = self._core.bodies
        return list(takewhile(lambda name: bodies.state(job, name).result_ref is None, names))

    async def _settlement(self, run: RunningBody, job: JobState, node_id: str) -> CallSettled:
        """As its body is told: of what that hands on unread, that it has succeeded."""
        bodies = self._core.bodies
        state = bodies.state(job, node_id)
        if state.result_ref is None or not run.reads(node_id):
            return bodies.settlement(run, job, node_id, state.result)
        while True:
            found = await self._loaded(job.job_id, [state.result_ref])
            if found is not None:
                return bodies.settlement(run, job, node_id, found[state.result_ref.sha256])

    async def _loaded(self, job_id: str, refs: Sequence[BlobRef]) -> Blobs | None:
        """Large results; None, after a pause, where their store is away."""
        try:
            return await self._deps.performer.load(refs)
        except BlobError as error:
            _log.warning("a body waits for a large result", job_id=job_id, error=type(error).__name__)
            await asyncio.sleep(_BLOB_PAUSE_S)
            return None

    async def _append(self, run: RunningBody) -> None:
        """What it plans now, behind what it was told and the log was not."""
        nodes = run.due()
        if not nodes and not (self._deferred and self._is_due):
            return
        blobs = await self._results_for(run, nodes)
        if blobs is None:
            return
        deferred = self._taken_deferred()
        planned = self._planned(run, nodes, blobs)
        refused = await self._write(deferred, [group for _, group, _ in planned])
        for node, group, first in planned:
            if group in refused:
                self._take_back(first)
                run.ends(BodyOutcome(error=f"CallRefused: {node.id}: its record can't be written"))

    async def _results_for(self, run: RunningBody, nodes: Sequence[Node]) -> Blobs | None:
        """The large results that these refer to; what is deferred doesn't wait for them. None: it is over."""
        refs = self._core.results_for(run, [node for node in nodes if not node.is_plain])
        found: Blobs | None = None if refs else {}
        if refs:
            await self._flush()
        while found is None and run.over is None:
            found = await self._loaded(run.invocation.started.job_id, refs)
        return None if run.over is not None else found

    def _planned(
        self, run: RunningBody, nodes: Sequence[Node], blobs: Blobs
    ) -> list[tuple[Node, Group, DeclaredInvocation | None]]:
        found: list[tuple[Node, Group, DeclaredInvocation | None]] = []
        tenant = self._invocation.run.taken.tenant
        for node in nodes:
            may_start = self._deps.slots.may_take(tenant) and not self._hosting.closing
            try:
                event, first = self._core.plan_call(run, node, fresh_secret(), may_start=may_start, blobs=blobs)
            except IndexError:
                run.ends(USED_UP)
                break
            except CallNotPlanned as refused:
                run.refused(refused.node_id, refused.why)
                break
            group = self._deps.scribe.write(traced(self._invocation), [event])
            if first is not None:
                self._deps.crash.reach("before_started", first.started.tool_name)
                self._deps.slots.take(tenant)
                grant = first.run.taken.grant
                self._deps.heartbeat.hold(grant.idempotency_key, grant.lease_id, self._hosting.place)
                group = (*group, *self._deps.scribe.write(traced(first), [first.started]))
            found.append((node, group, first))
        return found

    def _take_back(self, first: DeclaredInvocation | None) -> None:
        if first is not None:
            self._core.unclaim(first)
            self._deps.slots.release(first.run.taken.tenant)
            self._deps.heartbeat.let_go(first.started.idempotency_key, first.run.taken.grant.lease_id)

    async def _ended(self, run: RunningBody) -> bool:
        """Whether it has come to an end, and that is in the log."""
        outcome, job = run.over, self._job
        if outcome is None:
            return False
        if self._runs_there:
            self._runs_there = False
            self._host.stop(run.invocation_id, _WORDS.get(outcome.stop, "revoked"))
        await self._flush()
        step = run.end_step(job, closing=self._hosting.closing)
        outcome = run.over or outcome
        if step is EndStep.STOP:
            await self._write_stop(outcome)
        elif step is EndStep.END:
            await self._write_end(run, outcome)
        return step in (EndStep.STOP, EndStep.OVER)

    async def _flush(self) -> None:
        """What it was told is told to the log, whatever became of it."""
        deferred = self._taken_deferred()
        if deferred:
            await self._write(deferred, ())

    def _taken_deferred(self) -> list[_Deferred]:
        """All that waits, which from here on is on its way."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        deferred, self._deferred, self._is_due = self._deferred, [], False
        return deferred

    async def _write(self, deferred: Sequence[_Deferred], groups: Sequence[Group]) -> list[Group]:
        """Append reports, whose effects are kept first, and what follows from them; the groups that are refused."""
        for one in deferred:
            await self._deps.performer.keep(one.invocation, one.report)
        refusals = await write_all(self._hosting.appender, [*(one.report.drafts for one in deferred), *groups])
        refused = [one.group for one in refusals]
        for one in deferred:
            one.written.set_result(one.report.drafts not in refused)
        return refused

    async def _write_stop(self, outcome: BodyOutcome) -> None:
        if outcome.stop is Stop.DIVERGED:
            event = reports.diverged(self._invocation, outcome.evidence or {})
        elif outcome.stop is Stop.LOST:
            event = reports.body_lost(self._invocation, outcome.reason or "it was told what the log does not say")
        else:
            reason = outcome.reason or f"its body was stopped: {outcome.stop}"
            event = reports.stopped(self._invocation, reason, outcome.until)
        group = self._deps.scribe.write(traced(self._invocation), [event])
        with self._deps.heartbeat.appending(self._hosting.place):
            await self._deps.withheld.append([group])

    async def _write_end(self, run: RunningBody, outcome: BodyOutcome) -> None:
        self._invocation.frontier = run.said_frontier
        said = Succeeded(outcome.result) if outcome.error is None else Permanent(outcome.error)
        report = await self._deps.performer.report(self._invocation, said, None)
        await self._deps.performer.keep(self._invocation, report)
        if await write_all(self._hosting.appender, [report.drafts]):
            brief = await self._deps.performer.brief(self._invocation, report)
            if brief is not None and not await write_all(self._hosting.appender, [brief.drafts]):
                return
            run.end_was_refused()
            self.wake.set()


_WORDS: Mapping[Stop | None, Any] = {
    Stop.CANCELLED: "cancelled",
    Stop.SUPERSEDED: "superseded",
    Stop.REVOKED: "revoked",
    Stop.ASLEEP: "revoked",
    Stop.LOST: "revoked",
    Stop.DIVERGED: "diverged",
}
