"""Calls of bodies: the log itself asks for them; what bodies are woken by, and what they leave behind them."""

from collections.abc import Iterator

from aetheris.ledger.core import settlement
from aetheris.ledger.core.decisions import Decision, Now
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.live_jobs import LiveJob, LiveJobs, Reopened
from aetheris.ledger.core.settlement import JobKey
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import RejectReason
from aetheris.protocol.messages.events import Event


class BodyCalls:
    """Of one partition; `over` holds the bodies that have ended, and whose calls that never began are not refused."""

    def __init__(self, live_jobs: LiveJobs, due: DueTimes) -> None:
        self._live_jobs = live_jobs
        self._due = due
        self.over: dict[tuple[str, str], None] = {}

    def planned(self, job: LiveJob, event: ev.CallPlanned, now: Now) -> None:
        """A body has planned a call: that is the request for it."""
        self._due.judge(job, event.node_id, now)

    def started(self, job: LiveJob, node_id: str) -> None:
        """A node was started; of a body this counts until one of its calls settles."""
        if job.state.bodies is not None and node_id in job.state.bodies.of:
            job.takeovers[node_id] = job.takeovers.get(node_id, 0) + 1

    def reopened(self, job: LiveJob, node_id: str, event: Event) -> tuple[str, ...] | None:
        """A key is free again; what its body sleeps for: for nothing where it only has stopped, None of what is none.

        Who sleeps has not got stuck, and what a person wants again is counted anew.
        """
        if job.state.bodies is None or node_id not in job.state.bodies.of:
            return None
        if isinstance(event, ev.InvocationReopened):
            if event.by == "human":
                job.takeovers.pop(node_id, None)
            return None
        if isinstance(event, ev.ToolInvocationFinished) and event.until is not None:
            job.takeovers[node_id] = max(0, job.takeovers.get(node_id, 0) - 1)
            return event.until
        return ()

    def settled(self, job: LiveJob, node_id: str, now: Now) -> None:
        """A node was settled: the body that planned it may have waited for it; a body's calls are over with it."""
        bodies = job.state.bodies
        if bodies is None:
            return
        if node_id in bodies.of:
            self.over[job.state.job_id, node_id] = None
            return
        entry = job.state.entry(node_id)
        if entry is None or entry.call is None:
            return
        parent = entry.call.parent
        job.takeovers.pop(parent, None)
        key = bodies.of[parent].key
        held = job.keys.get(key)
        if isinstance(held, Reopened) and held.due_s == float("inf"):
            self._due.hurry_free(job, key, now)

    def decided(self) -> Iterator[Decision]:
        """What ended bodies have planned, and nobody has begun, is refused: nobody has to answer about it any more."""
        over, self.over = self.over, {}
        for job_id, node_id in over:
            job = self._live_jobs.jobs.get(job_id)
            if job is not None and job.state.terminal is None and not job.state.needs_upgrade:
                yield from self._refused(job, node_id)

    def _refused(self, job: LiveJob, parent: str) -> Iterator[Decision]:
        for key, state in tuple(_unbegun(job.state, parent)):
            job.asked.pop(key, None)
            yield settlement.rejected(
                JobKey(job.state, key, state), RejectReason.CANCELLED, f"{parent} has ended without it"
            )


def _unbegun(job: JobState, parent: str) -> Iterator[tuple[str, KeyState]]:
    """The calls of a body that nobody has begun, by their keys."""
    for node_id, entries in job.entries.items():
        call = entries[-1].call
        if call is None or call.parent != parent or job.settled_key(node_id) is not None:
            continue
        state = job.keys.get(call.key) or KeyState(node_id)
        if state.status is KeyStatus.NONE:
            yield call.key, state
