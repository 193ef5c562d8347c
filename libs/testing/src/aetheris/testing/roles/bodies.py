"""The executor's edge for workflows: their bodies run in this process, and are told what the log says."""

from collections.abc import Callable, Sequence
from typing import Any

from aetheris.protocol.base import recordable
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.goals import GOAL_ENTRY
from aetheris.protocol.planning.sessions import SESSION_ENTRY
from aetheris.sdk.outcomes import Permanent, Succeeded
from aetheris.sdk.workflows.bodies import Asked, BodyRaised, BodySaid, CallSettled, Idle, Lost, Returned
from aetheris.sdk.workflows.declaration import AnyWorkflow
from aetheris.sdk.workflows.local_bodies import LocalBodies
from aetheris.sdk.workflows.local_calls import LocalFunction
from aetheris.testing.topics import Topics
from aetheris.tool_executor.core import reports
from aetheris.tool_executor.core.body_runs import USED_UP, BodyOutcome, EndStep, RunningBody, Stop
from aetheris.tool_executor.core.partition import CallNotPlanned, Partition
from aetheris.tool_executor.core.tries import DeclaredInvocation
from aetheris.tool_executor.goal_bodies import GoalBodies
from aetheris.tool_executor.session_bodies import SessionBodies

Append = Callable[[Sequence[Event]], None]


class InMemoryBodies:
    """The bodies of one life of an executor."""

    def __init__(self, topics: Topics, core: Partition, workflows: Sequence[AnyWorkflow], append: Append) -> None:
        self._topics = topics
        self._core = core
        self._append = append
        self._local = LocalBodies(workflows, self._heard)
        self._built_in = {
            SESSION_ENTRY.key: SessionBodies(self._heard),
            GOAL_ENTRY.key: GoalBodies(self._heard),
        }
        self._runs: dict[str, RunningBody] = {}

    def begin(self, invocation: DeclaredInvocation) -> None:
        """Its `started` has won."""
        started = invocation.started
        job = self._core.jobs[started.job_id]
        run, history = self._core.bodies.begin(job, invocation)
        self._runs[run.invocation_id] = run
        start = self._core.bodies.start_of(job, invocation)
        settled = [self._settlement(run, job, one) for one in history]
        built_in = self._built_in.get(start.workflow)
        if built_in is not None:
            built_in.run(start, settled)
        else:
            self._local.begin(start, settled)

    def act(self) -> None:
        """Tell them what is new, append what they plan, and how they end."""
        for body, run in list(self._runs.items()):
            job = self._core.jobs.get(run.invocation.started.job_id)
            if job is None:
                self._forget(run)
                continue
            while run.news and run.over is None:
                names, run.news = run.news, []
                settled = [self._settlement(run, job, one) for one in names]
                self._local.settled(body, settled)
                for built_in in self._built_in.values():
                    built_in.settled(body, settled)
            for node in run.due():
                try:
                    blobs, secret = self._topics.blobs, self._topics.fresh_secret()
                    event, _ = self._core.plan_call(run, node, secret, may_start=False, blobs=blobs)
                except IndexError:
                    run.ends(USED_UP)
                    break
                except CallNotPlanned as refused:
                    run.refused(refused.node_id, refused.why)
                    break
                self._append([event])
            self._end(run, job)

    def runs(self, key: str) -> bool:
        """Whether one of them has this key."""
        return any(run.invocation.started.idempotency_key == key for run in self._runs.values())

    def local(self, job_id: str, node_id: str) -> LocalFunction | None:
        """What makes a call that one of them has asked for, where that is its own function."""
        of_job = [body for body, run in self._runs.items() if run.invocation.started.job_id == job_id]
        return next((one for body in of_job if (one := self._local.local(body, node_id)) is not None), None)

    def fall_asleep(self) -> bool:
        """Let go of those that only wait; whether there were any."""
        awake = [run for run in self._runs.values() if run.over is None]
        for run in awake:
            run.sleeps()
        self.act()
        return any(run.over is not None for run in awake)

    def lose(self) -> None:
        """The process of all of them dies."""
        for body, run in self._runs.items():
            self._drop(body)
            run.ends(BodyOutcome(stop=Stop.LOST, reason="a test has it die"))

    def _end(self, run: RunningBody, job: JobState) -> None:
        step = run.end_step(job, closing=False)
        outcome = run.over
        if outcome is None or step is EndStep.WAIT:
            return
        if step is EndStep.END:
            run.invocation.frontier = run.said_frontier
            self._append(_ended(run.invocation, outcome))
            return
        if step is EndStep.STOP:
            self._local.stop(run.invocation_id, "cancelled" if outcome.stop is Stop.CANCELLED else "superseded")
            self._append([_stopped(run.invocation, outcome)])
        self._forget(run)

    def _drop(self, body: str) -> None:
        self._local.drop(body)
        for built_in in self._built_in.values():
            built_in.stop(body, "revoked")

    def _forget(self, run: RunningBody) -> None:
        self._drop(run.invocation_id)
        self._runs.pop(run.invocation_id, None)
        self._core.bodies.forget(run.invocation)

    def _settlement(self, run: RunningBody, job: JobState, node_id: str) -> CallSettled:
        state = self._core.bodies.state(job, node_id)
        large = state.result_ref if run.reads(node_id) else None
        result = state.result if large is None else self._topics.blobs[large.sha256]
        return self._core.bodies.settlement(run, job, node_id, result)

    def _heard(self, said: BodySaid) -> None:
        run = self._runs[said.body]
        match said:
            case Asked(node=node, by_reference=by_reference, from_log=from_log):
                job = self._core.jobs[run.invocation.started.job_id]
                run.asks(job, node, by_reference=by_reference, from_log=from_log)
            case Idle(waits_for=awaited):
                run.idles(awaited)
            case Returned(result=result):
                run.ends(BodyOutcome(result=result))
            case BodyRaised(error_class=error_class, text=text):
                run.ends(BodyOutcome(error=f"{error_class}: {text}" if text else error_class))
            case Lost():
                pass


def _stopped(invocation: DeclaredInvocation, outcome: BodyOutcome) -> Event:
    if outcome.stop is Stop.DIVERGED:
        return reports.diverged(invocation, outcome.evidence or {})
    if outcome.stop is Stop.LOST:
        return reports.body_lost(invocation, outcome.reason or "")
    return reports.stopped(invocation, f"its body was stopped: {outcome.stop}", outcome.until)


def _ended(invocation: DeclaredInvocation, outcome: BodyOutcome) -> Sequence[Any]:
    if outcome.error is not None:
        return (reports.unsuccessful(invocation, Permanent(outcome.error)),)
    result = recordable.result(outcome.result)[0]
    return reports.succeeded(invocation, Succeeded(outcome.result), digest(result), result)
