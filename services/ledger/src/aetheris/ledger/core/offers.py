"""Grants that build on what can be compared: for the one worker that is known to be there (docs/confirmation.md)."""

from dataclasses import replace

from aetheris.ledger.core import confirmations
from aetheris.ledger.core.decisions import Grant, Now
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.live_jobs import LiveJob, LiveJobs, Offered, Pending, Reopened, TimedDecision, WorkerLife
from aetheris.ledger.core.presence import Presence
from aetheris.ledger.core.timer_queue import Item
from aetheris.protocol.messages.registry_lines import DEFAULT_POOL


class Offers:
    """What was offered to whom in one partition; `left` holds who has ended and is not dealt with yet."""

    def __init__(self, live_jobs: LiveJobs, due: DueTimes) -> None:
        self._live_jobs = live_jobs
        self._due = due
        self._presence: dict[str, Presence] = {}
        """Of each pool of executors."""
        self.left: list[WorkerLife] = []

    def restored(self) -> None:
        """History was read."""
        found = [one.restored() for one in self._presence.values()]
        if any(found):
            self._doubt_all_workers()

    def started(self, life: WorkerLife) -> None:
        """A worker has started a call."""
        pool = self._pool_of(life)
        presence = self._presence.setdefault(pool, Presence(self._live_jobs.ended))
        if presence.started(life) and self._live_jobs.is_restored:
            self._doubt_all_workers()

    def ended(self, life: WorkerLife) -> None:
        """A worker has ended."""
        if any(life == one.serving for one in self._presence.values()):
            self.left.append(life)

    def offer(self, job: LiveJob, held: Pending | Reopened, step: TimedDecision) -> TimedDecision:
        """A grant that builds on what can be compared is for the worker that is known to be there, and no other."""
        granted = step.grant()
        presence = self._presence.get(granted.message.pool or DEFAULT_POOL) if granted is not None else None
        life = presence.serving if presence is not None else None
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
            for job in self._live_jobs.jobs.awake():
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
        if any(one.gone(life) for one in self._presence.values()):
            self._doubt_all_workers()

    def _pool_of(self, life: WorkerLife) -> str:
        placement = self._live_jobs.context.placement
        return placement.pool_of_worker(life[0]) if placement is not None else DEFAULT_POOL

    def _doubt_all_workers(self) -> None:
        """Ledger and executor were gone together: what was read from the log is confirmed before it is built on."""
        restored_at, folded, context = self._live_jobs.restored_at, self._live_jobs.folded, self._live_jobs.context

        def doubt(job: LiveJob) -> None:
            if job.state.creation_offset <= restored_at:
                confirmations.resumed(job, folded, context)

        self._live_jobs.jobs.tell_all(doubt)


def _only_for(life: WorkerLife, granted: Grant) -> Grant:
    return replace(granted, message=granted.message.model_copy(update={"incarnation": life[1]}))
