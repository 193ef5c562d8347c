"""The executor's edge for bodies, simulated: as aetheris.tool_executor.body_hosts, whatever is next may be next."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from aetheris.protocol.base import recordable
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.event_values import After
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.goals import GOAL_ENTRY
from aetheris.sdk.outcomes import Permanent, Succeeded
from aetheris.sdk.workflows.bodies import Asked, BodyRaised, BodySaid, CallSettled, Idle, Returned
from aetheris.sdk.workflows.declaration import AnyWorkflow
from aetheris.sdk.workflows.local_bodies import LocalBodies
from aetheris.testkit.simulation.surroundings import ScheduledAction, SimulationSurroundings
from aetheris.tool_executor.core import reports
from aetheris.tool_executor.core.body_runs import BodyOutcome, EndStep, RunningBody, Stop
from aetheris.tool_executor.core.partition import CallNotPlanned, Partition
from aetheris.tool_executor.core.tries import DeclaredInvocation
from aetheris.tool_executor.goal_bodies import GoalBodies

IDLE_S = 10.0
"""So long a body waits before it is let go of."""

Append = Callable[[Sequence[Sequence[Sequence[Event]]]], None]
"""Groups, each of the events of one try or of several."""


@dataclass(slots=True, eq=False)
class _Body:
    run: RunningBody
    deferred: list[Sequence[Event]] = field(default_factory=list[Sequence[Event]])
    """What it was told, and the log was not."""
    runs_there: bool = True
    """Whether its code may still run."""
    is_awake: bool = True
    """Whether there is something to look at."""
    idle_s: float | None = None
    """Since when it waits."""


class SimulatedBodies:
    """The bodies of a process in one partition."""

    def __init__(
        self, around: SimulationSurroundings, core: Partition, name: str, flow: AnyWorkflow, append: Append
    ) -> None:
        self.closing = False
        self._around = around
        self._core = core
        self._name = name
        self._append = append
        self._local = LocalBodies((flow,), self._heard)
        self._goals = GoalBodies(self._heard)
        self._bodies: dict[str, _Body] = {}

    def actions(self) -> Iterable[ScheduledAction]:
        """What each does next; one that has waited for a while falls asleep."""
        for name, body in self._bodies.items():
            if body.is_awake:
                yield ScheduledAction(f"{self._name} goes on with body {name}", partial(self._go_on, body))
            elif body.idle_s is not None and self._around.now_s >= body.idle_s + IDLE_S:
                yield ScheduledAction(f"body {name} falls asleep", partial(self._fall_asleep, body))

    def begin(self, invocation: DeclaredInvocation) -> None:
        """Its `started` has won."""
        job = self._core.jobs[invocation.started.job_id]
        run, history = self._core.bodies.begin(job, invocation)
        self._bodies[run.invocation_id] = _Body(run)
        self._around.asked.setdefault(run.invocation_id, [])
        if self.closing:
            run.ends(BodyOutcome(stop=Stop.REVOKED))
        if run.over is None:
            start = self._core.bodies.start_of(job, invocation)
            settled = [self._settlement(run, job, one) for one in history]
            if start.workflow == GOAL_ENTRY.key:
                self._goals.run(start, settled)
            else:
                self._local.begin(start, settled)

    def follow(self) -> None:
        """Something was read: whoever it concerns looks at it."""
        for run in self._core.bodies.moved():
            body = self._bodies.get(run.invocation_id)
            if body is not None:
                body.is_awake = True

    def told(self, invocation: DeclaredInvocation, events: Sequence[Event], outcome: Succeeded) -> bool:
        """Whether a call's report goes with what its body plans upon it."""
        started = invocation.started
        job = self._core.jobs.get(started.job_id)
        run = self._core.bodies.of_call(job, started.node_id) if job is not None else None
        body = self._bodies.get(run.invocation_id) if run is not None else None
        if body is None or run is None or self.closing or outcome.partial:
            return False
        if not run.may_be_told_early(started.node_id):
            return False
        run.told_early(started.node_id, After(invocation_id=started.invocation_id, result_hash=digest(outcome.result)))
        body.deferred.append(events)
        body.is_awake = True
        settled = CallSettled(node_id=started.node_id, outcome="success", sure=False, result=outcome.result)
        self._tell(run, [settled])
        return True

    def close(self) -> None:
        """The partition is given back: each stops, says so, and is begun anew elsewhere."""
        self.closing = True
        for body in self._bodies.values():
            body.run.ends(BodyOutcome(stop=Stop.REVOKED))
            body.is_awake = True

    def lose(self) -> bool:
        """The process of all of them dies; whether there were any."""
        found = [body for body in self._bodies.values() if body.runs_there]
        for body in found:
            self._local.drop(body.run.invocation_id)
            self._goals.stop(body.run.invocation_id, "revoked")
            body.runs_there, body.is_awake = False, True
            body.run.ends(BodyOutcome(stop=Stop.LOST, reason="its process has died"))
        return bool(found)

    @property
    def keys(self) -> list[str]:
        """Whose leases are renewed."""
        return [body.run.invocation.started.idempotency_key for body in self._bodies.values()]

    def _go_on(self, body: _Body) -> None:
        """As the one task of a body does, once."""
        run = body.run
        job = self._core.jobs.get(run.invocation.started.job_id)
        body.is_awake = False
        if run.over is None and job is not None:
            while run.news and run.over is None:
                names, run.news = run.news, []
                self._tell(run, [self._settlement(run, job, one) for one in names])
            self._plan(body)
        if run.over is not None:
            self._end(body, run.over, job)

    def _plan(self, body: _Body) -> None:
        run = body.run
        nodes = run.due()
        groups: list[Sequence[Sequence[Event]]] = [[one] for one in body.deferred]
        body.deferred = []
        for node in nodes:
            may_start = not (self.closing or self._around.tape.chance(0.2))
            try:
                event, first = self._core.plan_call(run, node, self._around.fresh_secret(), may_start=may_start)
            except IndexError:
                run.ends(BodyOutcome(stop=Stop.REVOKED, reason="it has planned as many calls as one body can"))
                break
            except CallNotPlanned as refused:
                run.refused(refused.node_id, refused.why)
                break
            groups.append([[event]] if first is None else [[event], [first.started]])
        if groups:
            self._append(groups)

    def _end(self, body: _Body, outcome: BodyOutcome, job: JobState | None) -> None:
        run = body.run
        if body.runs_there:
            body.runs_there = False
            self._local.stop(run.invocation_id, "cancelled" if outcome.stop is Stop.CANCELLED else "superseded")
            self._goals.stop(run.invocation_id, "superseded")
        if body.deferred:
            self._append([[one] for one in body.deferred])
            body.deferred = []
        step = run.end_step(job, closing=self.closing)
        outcome = run.over or outcome
        if step is EndStep.WAIT:
            return
        if step is EndStep.END:
            self._append([[self._ended(run, outcome)]])
            return
        if step is EndStep.STOP:
            self._append([[(_stopped(run.invocation, outcome),)]])
        self._core.bodies.forget(run.invocation)
        del self._bodies[run.invocation_id]

    def _ended(self, run: RunningBody, outcome: BodyOutcome) -> tuple[Event, ...]:
        invocation, started = run.invocation, run.invocation.started
        invocation.frontier = run.said_frontier
        if outcome.error is not None:
            return (reports.unsuccessful(invocation, Permanent(outcome.error)),)
        result = recordable.result(outcome.result)[0]
        events = reports.succeeded(invocation, Succeeded(outcome.result), digest(result), result)
        self._around.redis.put(started.idempotency_key, started.invocation_id, events)
        self._around.external.results.setdefault((started.job_id, started.node_id), []).append(result)
        return events

    def _fall_asleep(self, body: _Body) -> None:
        body.run.sleeps()
        body.is_awake, body.idle_s = True, None

    def _tell(self, run: RunningBody, settled: Sequence[CallSettled]) -> None:
        self._local.settled(run.invocation_id, settled)
        self._goals.settled(run.invocation_id, settled)

    def _settlement(self, run: RunningBody, job: JobState, node_id: str) -> CallSettled:
        state = self._core.bodies.state(job, node_id)
        return self._core.bodies.settlement(run, job, node_id, state.result)

    def _heard(self, said: BodySaid) -> None:
        body = self._bodies[said.body]
        run, job = body.run, self._core.jobs.get(body.run.invocation.started.job_id)
        if job is None:
            return
        body.is_awake, body.idle_s = True, None
        match said:
            case Asked(node=node, by_reference=by_reference, from_log=from_log):
                self._around.asked[said.body].append(node["id"])
                run.asks(job, node, by_reference=by_reference, from_log=from_log)
            case Idle(waits_for=awaited):
                run.idles(awaited)
                body.idle_s = self._around.now_s
            case Returned(result=result):
                body.runs_there = False
                run.ends(BodyOutcome(result=result))
            case BodyRaised(error_class=error_class, text=text):
                body.runs_there = False
                run.ends(BodyOutcome(error=f"{error_class}: {text}" if text else error_class))
            case _:
                pass


def _stopped(invocation: DeclaredInvocation, outcome: BodyOutcome) -> Event:
    if outcome.stop is Stop.DIVERGED:
        return reports.diverged(invocation, outcome.evidence or {})
    if outcome.stop is Stop.LOST:
        return reports.body_lost(invocation, outcome.reason or "it was told what the log does not say")
    return reports.stopped(invocation, outcome.reason or f"its body was stopped: {outcome.stop}", outcome.until)
