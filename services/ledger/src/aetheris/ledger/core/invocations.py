"""Tries in charge: when they began, and what becomes known of their ends and of what they did."""

from aetheris.ledger.core.decisions import Now
from aetheris.ledger.core.doubt import LEASE_EXPIRED, WORKER_ENDED, ask_anew, note_unknown
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.live_jobs import CurrentInvocation, LiveJob, LiveJobs, WorkerLife
from aetheris.ledger.core.offers import Offers
from aetheris.ledger.core.probe_findings import ProbeFindings
from aetheris.ledger.core.timer_queue import Item
from aetheris.ledger.core.tool_failures import ToolFailures
from aetheris.ledger.core.worker_ends import WorkerEnds
from aetheris.protocol.fold.state import KeyState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Answer


class Invocations:
    """The `CurrentInvocation`s of one partition's jobs, kept as the log goes on."""

    def __init__(
        self, live_jobs: LiveJobs, due: DueTimes, ends: WorkerEnds, offers: Offers, failures: ToolFailures
    ) -> None:
        self._live_jobs = live_jobs
        self._due = due
        self._ends = ends
        self._offers = offers
        self._failures = failures
        self.findings = ProbeFindings(live_jobs)

    def begin(self, job: LiveJob, key: str, event: ev.ToolInvocationStarted, now: Now) -> None:
        """A key was started: its lease speaks for it, for a while."""
        invocation = CurrentInvocation(event.invocation_id, (event.worker_id, event.incarnation), 0.0)
        job.keys[key] = invocation
        self._offers.started(invocation.life)
        if invocation.life in job.state.gone:
            _worker_gone(invocation, now)
        elif self._live_jobs.is_restored and invocation.life in self._live_jobs.ended:
            self._ends.announce(job, invocation.life)
        wait_s = self._live_jobs.context.limits.lease_ttl_s if invocation.cause is None else 0.0
        self._due.put_off(invocation, now.mono_s + wait_s, Item("key", job.state.job_id, key))

    def resume(self, job: LiveJob, now: Now) -> None:
        """What was started before this process folded it gets a full TTL before its lease is missed."""
        for invocation in job.keys.values():
            if not isinstance(invocation, CurrentInvocation):
                continue
            if invocation.cause is None:
                invocation.due_s = now.mono_s + self._live_jobs.context.limits.lease_ttl_s
            if invocation.life in self._live_jobs.ended:
                self._ends.announce(job, invocation.life)

    def keep_parked(self, job: LiveJob, key: str, invocation: CurrentInvocation, now: Now) -> None:
        """A human is asked; what becomes known of the try's end may still spare him."""
        invocation.cause = invocation.cause or LEASE_EXPIRED
        job.keys[key] = invocation
        due_s = now.mono_s if invocation.ended_s is not None else float("inf")
        self._due.put_off(invocation, due_s, Item("key", job.state.job_id, key))

    def end_worker(self, job: LiveJob, life: WorkerLife, now: Now) -> None:
        """Who submitted the job gets no other try of it by saying so himself."""
        if life not in job.state.gone:
            return
        for key, invocation in job.keys.items():
            if isinstance(invocation, CurrentInvocation) and invocation.life == life:
                _worker_gone(invocation, now)
                ask_anew(invocation, job.state.keys[key])
                self._due.put_off(invocation, now.mono_s, Item("key", job.state.job_id, key))

    def doubt(self, job: LiveJob, event: ev.InvocationInDoubt, now: Now) -> None:
        """It is not known what a try did."""
        invocation = job.keys.get(event.idempotency_key)
        if not isinstance(invocation, CurrentInvocation) or invocation.invocation_id != event.invocation_id:
            return
        if event.returned and invocation.ended_s is None:
            invocation.ended_s, invocation.returned = now.mono_s, True
            ask_anew(invocation, job.state.keys[event.idempotency_key])
        elif invocation.cause is not None:
            return
        self._failures.judge(job, event, now)
        invocation.cause, invocation.evidence = invocation.cause or event.error_class, event.evidence
        self._due.put_off(invocation, now.mono_s, Item("key", job.state.job_id, event.idempotency_key))

    def take_answer(self, job: LiveJob, event: ev.InvocationProbed, now: Now) -> None:
        """The external system was asked whether a try took effect."""
        if event.answer is Answer.FOUND:
            self.findings.take(job.state.job_id, event)
            return
        invocation = job.keys.get(event.idempotency_key)
        if not isinstance(invocation, CurrentInvocation) or not _is_about(job.state.keys[event.idempotency_key], event):
            return
        if invocation.ask is not None and invocation.ask[0] == event.ask:
            if event.answer is Answer.NOT_FOUND:
                invocation.absent_s, invocation.ask, invocation.unknowns = invocation.ask[1], None, 0
            else:
                note_unknown(invocation, self._live_jobs.context, now.mono_s)
        elif event.answer is Answer.NOT_FOUND and event.ask in invocation.late:
            sent_s = invocation.late.pop(event.ask)
            invocation.absent_s, invocation.unknowns = max(sent_s, invocation.absent_s or sent_s), 0
        else:
            return  # asked by another process: this one's clock can't tell when
        self._due.put_off(invocation, now.mono_s, Item("key", job.state.job_id, event.idempotency_key))


def _worker_gone(invocation: CurrentInvocation, now: Now) -> None:
    invocation.ended_s = now.mono_s if invocation.ended_s is None else invocation.ended_s
    invocation.cause = invocation.cause or WORKER_ENDED


def _is_about(state: KeyState, answer: ev.InvocationProbed) -> bool:
    """Whether it is about what the call sent; an answer about any other key says nothing of it."""
    asked = state.invocations.get(answer.invocation_id)
    return asked is not None and asked.external_key == answer.external_key
