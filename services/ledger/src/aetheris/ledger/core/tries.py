"""Tries in charge: when they began, and what becomes known of their ends and of what they did."""

from aetheris.ledger.core.agenda import Item
from aetheris.ledger.core.decisions import Now
from aetheris.ledger.core.doubt import LEASE_EXPIRED, WORKER_ENDED, ask_anew, note_unknown
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.memory import LiveJob, PartitionMemory, Started, WorkerLife
from aetheris.ledger.core.offers import Offers
from aetheris.ledger.core.probe_findings import ProbeFindings
from aetheris.ledger.core.tool_failures import ToolFailures
from aetheris.ledger.core.worker_ends import WorkerEnds
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Answer


class Tries:
    """The `Started` of one partition's jobs, kept as the log goes on."""

    def __init__(
        self, memory: PartitionMemory, due: DueTimes, ends: WorkerEnds, offers: Offers, failures: ToolFailures
    ) -> None:
        self._memory = memory
        self._due = due
        self._ends = ends
        self._offers = offers
        self._failures = failures
        self.findings = ProbeFindings(memory)

    def begin(self, job: LiveJob, key: str, event: ev.ToolInvocationStarted, now: Now) -> None:
        """A key was started: its lease speaks for it, for a while."""
        tried = Started(event.invocation_id, (event.worker_id, event.incarnation), 0.0)
        job.keys[key] = tried
        self._offers.started(tried.life)
        if tried.life in job.state.gone:
            _worker_gone(tried, now)
        elif self._memory.live and tried.life in self._memory.ended:
            self._ends.announce(job, tried.life)
        wait_s = self._memory.terms.limits.lease_ttl_s if tried.cause is None else 0.0
        self._due.put_off(tried, now.mono_s + wait_s, Item("key", job.state.job_id, key))

    def resume(self, job: LiveJob, now: Now) -> None:
        """What was started before this process folded it gets a full TTL before its lease is missed."""
        for tried in job.keys.values():
            if not isinstance(tried, Started):
                continue
            if tried.cause is None:
                tried.due_s = now.mono_s + self._memory.terms.limits.lease_ttl_s
            if tried.life in self._memory.ended:
                self._ends.announce(job, tried.life)

    def keep_parked(self, job: LiveJob, key: str, tried: Started, now: Now) -> None:
        """A human is asked; what becomes known of the try's end may still spare him."""
        tried.cause = tried.cause or LEASE_EXPIRED
        job.keys[key] = tried
        due_s = now.mono_s if tried.ended_s is not None else float("inf")
        self._due.put_off(tried, due_s, Item("key", job.state.job_id, key))

    def end_worker(self, job: LiveJob, life: WorkerLife, now: Now) -> None:
        """Who submitted the job gets no other try of it by saying so himself."""
        if life not in job.state.gone:
            return
        for key, tried in job.keys.items():
            if isinstance(tried, Started) and tried.life == life:
                _worker_gone(tried, now)
                ask_anew(tried, job.state.keys[key])
                self._due.put_off(tried, now.mono_s, Item("key", job.state.job_id, key))

    def doubt(self, job: LiveJob, event: ev.InvocationInDoubt, now: Now) -> None:
        """It is not known what a try did."""
        tried = job.keys.get(event.idempotency_key)
        if not isinstance(tried, Started) or tried.nonce != event.invocation_id:
            return
        if event.returned and tried.ended_s is None:
            tried.ended_s, tried.returned = now.mono_s, True
            ask_anew(tried, job.state.keys[event.idempotency_key])
        elif tried.cause is not None:
            return
        self._failures.judge(job, event, now)
        tried.cause = tried.cause or event.error_class
        self._due.put_off(tried, now.mono_s, Item("key", job.state.job_id, event.idempotency_key))

    def take_answer(self, job: LiveJob, event: ev.InvocationProbed, now: Now) -> None:
        """The outside was asked whether a try took effect."""
        if event.answer is Answer.FOUND:
            self.findings.take(job.state.job_id, event)
            return
        tried = job.keys.get(event.idempotency_key)
        if not isinstance(tried, Started):
            return
        if tried.ask is not None and tried.ask[0] == event.ask:
            if event.answer is Answer.NOT_FOUND:
                tried.absent_s, tried.ask, tried.unknowns = tried.ask[1], None, 0
            else:
                note_unknown(tried, self._memory.terms, now.mono_s)
        elif event.answer is Answer.NOT_FOUND and event.ask in tried.late:
            sent_s = tried.late.pop(event.ask)
            tried.absent_s, tried.unknowns = max(sent_s, tried.absent_s or sent_s), 0
        else:
            return  # asked by another process: this one's clock can't tell when
        self._due.put_off(tried, now.mono_s, Item("key", job.state.job_id, event.idempotency_key))


def _worker_gone(tried: Started, now: Now) -> None:
    tried.ended_s = now.mono_s if tried.ended_s is None else tried.ended_s
    tried.cause = tried.cause or WORKER_ENDED
