"""Grants that build on what can be compared: for the one worker that is known to be there (docs/confirmation.md)."""

from dataclasses import replace

from aetheris.ledger.core import confirmations
from aetheris.ledger.core.decisions import Grant, Now
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.live_jobs import LiveJob, LiveJobs, Offered, Pending, Reopened, TimedDecision, WorkerLife
from aetheris.ledger.core.presence import Presence
from aetheris.ledger.core.timer_queue import Item


class Offers:
    """What was offered to whom in one partition; `left` holds who has ended and is not dealt with yet."""

    def __init__(self, live_jobs: LiveJobs, due: DueTimes) -> None:
        self._live_jobs = live_jobs
        self._due = due
        self._presence = Presence(live_jobs.ended)
        self.left: list[WorkerLife] = []

    def restored(self) -> None:
        """History was read."""
        if self._presence.restored():
            self._doubt_all_workers()

    def started(self, life: WorkerLife) -> None:
        """A worker has started a call."""
        if self._presence.started(life) and self._live_jobs.is_restored:
            self._doubt_all_workers()

    def ended(self, life: WorkerLife) -> None:
        """A worker has ended."""
        if life == self._presence.serving:
            self.left.append(life)

    def offer(self, job: LiveJob, held: Pending | Reopened, step: TimedDecision) -> TimedDecision:
        """A grant that builds on what can be compared is for the worker that is known to be there, and no other."""
        life = self._presence.serving
        granted = step.grant()
        if granted is None or life is None or step.due_s is None:
            return step
        if not confirmations.builds_on(job.state, granted.message.nodes, self._live_jobs.context):
            return step
        held.offered = Offered(life, step.due_s)
        return TimedDecision((_only_for(life, granted),), step.due_s)

    def miss(self, held: Pending | Reopened, now: Now) -> None:
        """What was offered to one worker, and not taken up in time: that worker is not there."""
        if held.offered is not None and held.offered.until_s <= now.mono_s:
            self._gone(held.offered.life)
            held.offered = None

    def withdraw(self, now: Now) -> None:
        """What was offered to workers that have ended is judged anew."""
        left, self.left = self.left, []
        for life in left:
            self._gone(life)
            for job in self._live_jobs.jobs.values():
                self._withdraw(job, life, now)

    def _withdraw(self, job: LiveJob, life: WorkerLife, now: Now) -> None:
        for node_id, pending in job.pending.items():
            if pending.offered is not None and pending.offered.life == life:
                pending.offered = None
                self._due.hurry(job, node_id, now)
        for key, free in job.keys.items():
            if isinstance(free, Reopened) and free.offered is not None and free.offered.life == life:
                free.offered = None
                self._due.put_off(free, now.mono_s, Item("key", job.state.job_id, key))

    def _gone(self, life: WorkerLife) -> None:
        if self._presence.gone(life):
            self._doubt_all_workers()

    def _doubt_all_workers(self) -> None:
        """Ledger and executor were gone together: what was read from the log is confirmed before it is built on."""
        for job in self._live_jobs.jobs.values():
            if job.state.creation_offset <= self._live_jobs.restored_at:
                confirmations.resumed(job, self._live_jobs.folded, self._live_jobs.context)


def _only_for(life: WorkerLife, granted: Grant) -> Grant:
    return replace(granted, message=granted.message.model_copy(update={"incarnation": life[1]}))
