"""What an event brings about beside the fold: by its kind, which part of the memory it changes, and what is due."""

from aetheris.ledger.core import confirmations, waits
from aetheris.ledger.core.asked_humans import AskedHumans
from aetheris.ledger.core.decisions import Now
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.freezes import Freezes
from aetheris.ledger.core.invocations import Invocations
from aetheris.ledger.core.key_changes import KeyChanges
from aetheris.ledger.core.live_jobs import LiveJob, LiveJobs
from aetheris.ledger.core.node_requests import NodeRequests
from aetheris.ledger.core.node_waits import NodeWaits
from aetheris.protocol.fold.state import NODE_WAITS
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Event


class Reactions:
    """Of one partition: called once for each event that the fold took."""

    def __init__(
        self, live_jobs: LiveJobs, due: DueTimes, requests: NodeRequests, invocations: Invocations, changes: KeyChanges
    ) -> None:
        self._live_jobs = live_jobs
        self._due = due
        self._requests = requests
        self._invocations = invocations
        self.freezes = Freezes(live_jobs, due)
        self._cancels, self._lines, self._bodies = changes.cancels, changes.lines, changes.bodies
        self._humans = AskedHumans(live_jobs, due)
        self._waits = NodeWaits(due)

    def follow(self, job: LiveJob, event: Event, now: Now, at_s: float) -> None:
        """The event was folded; `at_s` is when it was appended, in seconds since 1970."""
        if isinstance(event, (ev.PolicyAllowed, ev.ApprovalRequested, ev.InvocationRejected)):
            job.activation = max(job.activation, event.activation or 0)
            self._live_jobs.activation = max(self._live_jobs.activation, job.activation)
        match event:
            case ev.CallPlanned():
                self._bodies.planned(job, event, now)
                self.freezes.look(job)  # it may be the first of a tool that is frozen
            case ev.WorkerEnded():
                self._invocations.end_worker(job, (event.worker_id, event.incarnation), now)
            case ev.InvocationInDoubt():
                self._invocations.doubt(job, event, now)
            case ev.InvocationProbed():
                self._invocations.take_answer(job, event, now)
            case ev.RetryScheduled():
                self._due.retry(job, event.idempotency_key, now)
            case ev.InvocationCancelRequested():
                self._due.hurry_free(job, event.idempotency_key, now)
            case ev.PolicyAllowed() | ev.ApprovalRequested() | ev.ApprovalVoted() | ev.ApprovalDecided():
                self._follow_approval(job, event, now, at_s)
            case ev.ResolutionVoted():
                self._live_jobs.voted[event.job_id, event.idempotency_key] = None
            case ev.JobWaiting():
                self._begin_wait(job, event, now)
            case ev.WaitCompleted():
                self._end_wait(job, event, now)
            case ev.SignalReceived():
                self._waits.hurry(job, event.correlation_key, now)
            case _:
                self._follow_job(job, event, now)

    def _follow_approval(
        self,
        job: LiveJob,
        event: ev.PolicyAllowed | ev.ApprovalRequested | ev.ApprovalVoted | ev.ApprovalDecided,
        now: Now,
        at_s: float,
    ) -> None:
        match event:
            case ev.PolicyAllowed():
                self._humans.charge(job, event, at_s)
                self._due.hurry(job, event.node_id, now)
            case ev.ApprovalRequested():
                self._humans.charge(job, event, at_s)
                self._requests.discharge(job, event.node_id)
                self._humans.begin(job, event, now)
            case ev.ApprovalVoted():
                self._humans.count(job, event, now)
            case ev.ApprovalDecided():
                self._humans.decide(job, event, now)

    def _follow_job(self, job: LiveJob, event: Event, now: Now) -> None:
        """What concerns the whole job."""
        match event:
            case ev.JobResumed():
                confirmations.resumed(job, self._live_jobs.folded, self._live_jobs.context)
                self._due.go_on(job, now)
            case ev.JobFrozen():
                self.freezes.changed(job, event.scope)
            case ev.JobUnfrozen():
                if event.scope.tool is None:
                    confirmations.resumed(job, self._live_jobs.folded, self._live_jobs.context)
                self.freezes.changed(job, event.scope)
                self._due.go_on(job, now)
            case ev.CancelRequested():
                self._cancels.give_up(job)
                self._due.go_on(job, now)
            case ev.JobCompleted() | ev.JobFailed() | ev.JobCancelled():
                self._lines.over(job)
                self._change_plan(job, now)
            case ev.JobStopping() | ev.PlanGenerated():
                self._change_plan(job, now)
            case _:
                pass

    def _change_plan(self, job: LiveJob, now: Now) -> None:
        self._due.change_plan(job, now)
        self.freezes.look(job)
        self._cancels.give_up(job)

    def _begin_wait(self, job: LiveJob, event: ev.JobWaiting, now: Now) -> None:
        if event.wait_type == confirmations.WAIT:
            confirmations.asked(job, event)
        if event.wait_type == waits.EXECUTOR and event.node_id is not None:
            self._requests.discharge(job, event.node_id)  # from here on the log asks for it
            self._due.judge(job, event.node_id, now)
        if event.node_id is None or event.idempotency_key is None or event.wait_type not in NODE_WAITS:
            return
        self._requests.discharge(job, event.node_id)
        self._waits.begin(job, event.idempotency_key, event, event.node_id, now)

    def _end_wait(self, job: LiveJob, event: ev.WaitCompleted, now: Now) -> None:
        if event.wait_type == confirmations.WAIT:
            confirmations.accept(job)
            self._due.hurry_all(job, now)
            return
        if event.wait_type == confirmations.UNANSWERED:
            self._due.hurry_all(job, now)
            return
        confirmations.resumed(job, self._live_jobs.folded, self._live_jobs.context)
        if event.wait_type == waits.EXECUTOR:
            self._due.hurry_all(job, now)
        elif event.node_id is not None:
            self._due.hurry(job, event.node_id, now)
        self._waits.end(job, event)
        if event.node_id is not None and job.state.settled_key(event.node_id) is not None:
            self._bodies.settled(job, event.node_id, now)
