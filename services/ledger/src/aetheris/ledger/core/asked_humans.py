"""Requests to humans about calls: open from the log's word on, until it has another."""

from aetheris.ledger.core import confirmations, votes
from aetheris.ledger.core.adjudication import is_closed
from aetheris.ledger.core.decisions import Now
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.live_jobs import LiveJob, LiveJobs, PendingApproval
from aetheris.ledger.core.settlement import JobKey
from aetheris.ledger.core.timer_queue import Item
from aetheris.protocol.fold.state import KeyStatus
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Decision
from aetheris.protocol.planning.approvals import request_id


class AskedHumans:
    """The open requests of one partition's jobs, and what they have taken of their rules' budgets."""

    def __init__(self, live_jobs: LiveJobs, due: DueTimes) -> None:
        self._live_jobs = live_jobs
        self._due = due

    def charge(self, job: LiveJob, event: ev.PolicyAllowed | ev.ApprovalRequested, at_s: float) -> None:
        """What a call takes of its rule's budget or rate, from the time of its event on.

        What another activation has decided it counts without a limit: which one held then is not known any more.
        """
        if event.cost is None:
            return
        context = self._live_jobs.context
        decided = context.policies.number == (event.activation or 0)
        rule = context.rules.limited.get(event.rule) if decided else None
        job.account(event.rule).take(rule, event.idempotency_key, event.cost, at_s)

    def begin(self, job: LiveJob, event: ev.ApprovalRequested, now: Now) -> None:
        """The log waits from here on; the request's due time is in the event."""
        key, entry = event.idempotency_key, job.state.entry(event.node_id)
        if not job.state.keys[key].is_asking or entry is None:
            return
        due_s = now.due_at(event.expires_at)
        if is_closed(job.state, entry):
            due_s = now.mono_s  # asked for behind a stop that was not read yet: nobody has to answer
        job.requests[request_id(event.job_id, event.node_id, key, event.generation)] = key
        job.asked[key] = PendingApproval(entry, due_s)
        self._due.put(due_s, Item("request", event.job_id, key))
        self._due.supersede(job, key, now)

    def count(self, job: LiveJob, event: ev.ApprovalVoted, now: Now) -> None:
        """A vote has been folded: whether it was the last one that was needed is looked at now."""
        key = event.idempotency_key
        asked = job.asked.get(key)
        if asked is not None and self._comes_to_one(job, key, now):
            self._due.put_off(asked, now.mono_s, Item("request", job.state.job_id, key))

    def _comes_to_one(self, job: LiveJob, key: str, now: Now) -> bool:
        return votes.tallied(JobKey(job.state, key, job.state.keys[key]), self._live_jobs.context, now) is not None

    def decide(self, job: LiveJob, event: ev.ApprovalDecided, now: Now) -> None:
        """A human has answered: what he lets through is judged again."""
        asked = job.asked.pop(event.idempotency_key, None)
        state = job.state.keys[event.idempotency_key]
        if event.decision is Decision.APPROVE:
            confirmations.resumed(job, self._live_jobs.folded, self._live_jobs.context)
        elif not state.unresolved:
            job.give_back(event.idempotency_key)
        if event.decision is Decision.EDIT and asked is not None and job.state.entry(event.node_id) is not asked.entry:
            return  # the call that the edit makes is asked for in the same group of events
        self._due.hurry_free(job, event.idempotency_key, now)
        if state.status is KeyStatus.NONE:
            self._due.judge(job, event.node_id, now)
