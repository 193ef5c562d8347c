"""A key goes from one state to another: what is remembered of it, by the state that it comes to."""

from aetheris.ledger.core import confirmations
from aetheris.ledger.core.body_calls import BodyCalls
from aetheris.ledger.core.body_starts import sleeps_on
from aetheris.ledger.core.cancellations import Cancellations
from aetheris.ledger.core.decisions import Now
from aetheris.ledger.core.doubt import is_reported
from aetheris.ledger.core.due_times import DueTimes, Held
from aetheris.ledger.core.invocations import Invocations
from aetheris.ledger.core.live_jobs import CurrentInvocation, LiveJob, LiveJobs, Reopened, Waiting
from aetheris.ledger.core.node_requests import NodeRequests
from aetheris.ledger.core.settled_lines import SettledLines
from aetheris.ledger.core.timer_queue import Item
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.state import KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Event


class KeyChanges:
    """Of one partition; `joined` names job and key of what started as a later node of a run, until it is taken."""

    def __init__(self, live_jobs: LiveJobs, due: DueTimes, requests: NodeRequests, invocations: Invocations) -> None:
        self.bodies = BodyCalls(live_jobs, due)
        self._live_jobs = live_jobs
        self._due = due
        self._requests = requests
        self._invocations = invocations
        self.cancels = Cancellations(live_jobs)
        self.lines = SettledLines(live_jobs)
        self.joined: list[tuple[str, str]] = []

    def moved(self, job: LiveJob, key: str, before: KeyStatus, event: Event, now: Now) -> None:
        """The event has moved the key on from the state that it had before."""
        state = job.state.keys[key]
        over = job.keys.pop(key, None)
        if isinstance(over, Waiting):
            job.awaited.pop(over.event.correlation_key or "", None)
        if before is KeyStatus.PARKED:
            confirmations.resumed(job, self._live_jobs.folded, self._live_jobs.context)
            job.parked.pop(execution_id(job.state.job_id, state.node_id, key), None)
        if isinstance(event, ev.ToolInvocationStarted):
            self._start(job, key, event, now)
        elif state.status is KeyStatus.REOPENED:
            self._reopen(job, key, event, now)
        elif state.status is KeyStatus.PARKED:
            self._park(job, key, over, now)
        elif state.status is KeyStatus.SETTLED:
            self._settle(job, key, now)

    def _start(self, job: LiveJob, key: str, event: ev.ToolInvocationStarted, now: Now) -> None:
        self._requests.discharge(job, event.node_id)
        self._due.supersede(job, key, now)
        if event.after and self._live_jobs.is_restored:
            self.joined.append((job.state.job_id, key))
        self._invocations.begin(job, key, event, now)
        self.bodies.started(job, event.node_id)

    def _reopen(self, job: LiveJob, key: str, event: Event, now: Now) -> None:
        state = job.state.keys[key]
        after_proof = isinstance(event, ev.ToolInvocationFinished)
        paced = isinstance(event, ev.InvocationReopened) and event.by == "policy" and is_reported(state)
        until = self.bodies.reopened(job, state.node_id, event)
        sleeps = until is not None and not self._live_jobs.is_restored and sleeps_on(job.state, key, until)
        due_s = float("inf") if sleeps else now.mono_s  # of history nobody who sleeps is looked at
        job.keys[key] = Reopened(due_s, after_proof, paced, until)
        self._due.put(due_s, Item("key", job.state.job_id, key))

    def _park(self, job: LiveJob, key: str, over: Held | None, now: Now) -> None:
        job.parked[execution_id(job.state.job_id, job.state.keys[key].node_id, key)] = key
        job.parked_at[key] = job.state.last_offset
        if isinstance(over, CurrentInvocation):
            self._invocations.keep_parked(job, key, over, now)
        self.cancels.give_up(job)

    def _settle(self, job: LiveJob, key: str, now: Now) -> None:
        state = job.state.keys[key]
        self._requests.discharge(job, state.node_id)
        last = job.state.keys[job.state.node_keys[state.node_id][-1]]
        if last.status is KeyStatus.NONE and last.decision is not None:  # approved, and perhaps for another plan
            self._due.judge(job, state.node_id, now)
        job.asked.pop(key, None)
        if state.outcome is not Settled.SUCCESS and state.sure:
            job.give_back(key)
        self.lines.settled(job, key)
        self.bodies.settled(job, state.node_id, now)
