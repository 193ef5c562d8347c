"""When what a live job waits for is judged: put off, brought forward, or at the time that the log has."""

from collections.abc import Iterable

from aetheris.ledger.core.adjudication import pause_s
from aetheris.ledger.core.decisions import Now
from aetheris.ledger.core.live_jobs import (
    CurrentInvocation,
    LiveJob,
    LiveJobs,
    Pending,
    PendingApproval,
    Reopened,
    Waiting,
)
from aetheris.ledger.core.timer_queue import Item, TimerQueue
from aetheris.protocol.plan.graph import Retry

Held = Pending | CurrentInvocation | Reopened | Waiting | PendingApproval


class DueTimes:
    """The agenda of one partition, in terms of its jobs; empty until history was read."""

    def __init__(self, live_jobs: LiveJobs) -> None:
        self._live_jobs = live_jobs
        self._timers = TimerQueue(self._due_of)

    def take(self, now_s: float) -> list[Item]:
        """What is due, each item once."""
        return self._timers.take(now_s)

    def next_due(self) -> float | None:
        """The earliest time at which something is due."""
        return self._timers.next_due()

    def put(self, due_s: float, item: Item) -> None:
        """Remember the item; what is never due by the clock, and history, is left out."""
        if self._live_jobs.is_restored and due_s < float("inf"):
            self._timers.put(due_s, item)

    def put_off(self, held: Held, due_s: float, item: Item) -> None:
        """Give it another due time, earlier or later."""
        held.due_s = due_s
        self.put(due_s, item)

    def put_all(self, timers: Iterable[tuple[float, Item]]) -> None:
        """Everything that a job read from history waits for."""
        for due_s, item in timers:
            self.put(due_s, item)

    def hurry(self, job: LiveJob, node_id: str, now: Now) -> None:
        """A requested node is judged now."""
        pending = job.pending.get(node_id)
        if pending is not None:
            self.put_off(pending, now.mono_s, Item("node", job.state.job_id, node_id))

    def judge(self, job: LiveJob, node_id: str, now: Now) -> None:
        """A node is judged now, also one that is not requested: a human's word asks for it."""
        job.pending.setdefault(node_id, Pending((node_id,), None, None, now.mono_s))
        self.hurry(job, node_id, now)

    def hurry_free(self, job: LiveJob, key: str, now: Now) -> None:
        """A key that is free for its next try is judged now."""
        free = job.keys.get(key)
        if isinstance(free, Reopened):
            self.put_off(free, now.mono_s, Item("key", job.state.job_id, key))

    def hurry_all(self, job: LiveJob, now: Now) -> None:
        """Whatever of the job waits to start is judged now."""
        for node_id in job.pending:
            self.hurry(job, node_id, now)
        for key in job.keys:
            self.hurry_free(job, key, now)

    def retry(self, job: LiveJob, key: str, now: Now) -> None:
        """A key that is free for its next try is judged at the time that is recorded, if one is."""
        free = job.keys.get(key)
        if not isinstance(free, Reopened):
            return
        state = job.state.keys[key]
        entry = job.state.entry(state.node_id)
        retry = entry.node.retry if entry is not None else None
        longest_s = pause_s(retry or Retry(), state.attempt_count)
        wait_s = min(now.seconds_until(state.retry_due), longest_s)  # the writer's clock may have been wrong
        self.put_off(free, now.mono_s + wait_s, Item("key", job.state.job_id, key))

    def go_on(self, job: LiveJob, now: Now) -> None:
        """A pause is over: what it held may start."""
        for node_id in job.pending:
            self.hurry(job, node_id, now)
        for key in job.keys:
            self.retry(job, key, now)

    def supersede(self, job: LiveJob, key: str, now: Now) -> None:
        """Requests about calls that a node no longer makes, since `key` is asked for or started, are judged now."""
        for other in job.supersede(key):
            self.put_off(job.asked[other], now.mono_s, Item("request", job.state.job_id, other))

    def look_again(self, item: Item, now: Now) -> None:
        """What held the item is over."""
        job = self._live_jobs.jobs.get(item.job_id)
        if job is None:
            return
        if item.what == "key":
            self.retry(job, item.name, now)
        elif item.what == "node":
            self.hurry(job, item.name, now)

    def change_plan(self, job: LiveJob, now: Now) -> None:
        """A stop, an end or a new plan: what will never go on is settled, what was asked for is judged anew."""
        job_id = job.state.job_id
        for node_id in job.pending:
            self.hurry(job, node_id, now)
        for key, held in job.keys.items():
            if isinstance(held, Reopened | Waiting):
                self.put_off(held, now.mono_s, Item("key", job_id, key))
        for key, asked in job.asked.items():
            self.put_off(asked, now.mono_s, Item("request", job_id, key))

    def _due_of(self, item: Item) -> float | None:
        job = self._live_jobs.jobs.get(item.job_id)
        if job is None:
            return None
        match item.what:
            case "key":
                held = job.keys.get(item.name)
            case "node":
                held = job.pending.get(item.name)
            case "request":
                held = job.asked.get(item.name)
        return held.due_s if held is not None else None
