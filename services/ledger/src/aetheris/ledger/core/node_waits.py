"""Nodes that wait for a signal, a time or a human: what the log begins and ends of it."""

from aetheris.ledger.core import waits
from aetheris.ledger.core.decisions import Now
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.live_jobs import LiveJob, Waiting
from aetheris.ledger.core.timer_queue import Item
from aetheris.protocol.messages import events as ev


class NodeWaits:
    """The open waits of one partition's nodes, by key and by correlation key."""

    def __init__(self, due: DueTimes) -> None:
        self._due = due

    def begin(self, job: LiveJob, key: str, event: ev.JobWaiting, node_id: str, now: Now) -> None:
        """It is looked at once at the beginning: what it waits for may have come before it."""
        job_id, correlation_key = job.state.job_id, event.correlation_key or ""
        longest_s = waits.longest_s(job.state, node_id)
        due_s = now.mono_s + min(now.seconds_until(event.due_at), longest_s) if event.due_at else float("inf")
        job.keys[key] = Waiting(event, due_s)
        job.awaited[correlation_key] = key
        if event.wait_type == "human":
            job.requests[correlation_key] = key
        if not self.hurry(job, correlation_key, now):
            self._due.put(due_s, Item("key", job_id, key))

    def hurry(self, job: LiveJob, correlation_key: str, now: Now) -> bool:
        """Whether a signal for this wait lies in the inbox; it is judged now then."""
        key = job.awaited.get(correlation_key)
        waiting = job.keys.get(key) if key is not None else None
        if key is None or correlation_key not in job.state.signals or not isinstance(waiting, Waiting):
            return False
        self._due.put_off(waiting, now.mono_s, Item("key", job.state.job_id, key))
        return True

    def end(self, job: LiveJob, event: ev.WaitCompleted) -> None:
        """It is over."""
        job.awaited.pop(event.correlation_key or "", None)
        if isinstance(job.keys.get(event.idempotency_key or ""), Waiting):
            del job.keys[event.idempotency_key or ""]
