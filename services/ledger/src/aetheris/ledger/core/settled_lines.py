"""The lines of ledger.records and ledger.contents that follow from settlements, and from ends of jobs."""

from collections import deque

from aetheris.ledger.core.decisions import Decision, DuplicateLine, Now, View
from aetheris.ledger.core.duplicate_index import released, settled
from aetheris.ledger.core.live_jobs import LiveJob, LiveJobs
from aetheris.ledger.core.records import record_of

VIEWS_AFTER_RESTART = 10_000
"""Settlements of the history's end whose lines in ledger.records are written again: a crash may have lost them."""


class SettledLines:
    """Of one partition: what has been settled, and which jobs have ended, since the last `decide`."""

    def __init__(self, live_jobs: LiveJobs) -> None:
        self._live_jobs = live_jobs
        self._settled: deque[tuple[LiveJob, str, int]] = deque()
        self._over: list[LiveJob] = []

    @property
    def unwritten(self) -> bool:
        """Whether there are any."""
        return bool(self._settled or self._over)

    def settled(self, job: LiveJob, key: str) -> None:
        """A key was settled by the event that is being folded."""
        self._settled.append((job, key, self._live_jobs.folded))
        if not self._live_jobs.is_restored and len(self._settled) > VIEWS_AFTER_RESTART:
            self._settled.popleft()

    def over(self, job: LiveJob) -> None:
        """A job has ended."""
        self._over.append(job)

    def decided(self, now: Now) -> list[Decision]:
        """The lines."""
        views: list[Decision] = [View(record_of(job.state, key, offset)) for job, key, offset in self._settled]
        duplicates = self._live_jobs.context.duplicates
        lines = [settled(job.state, key, duplicates, now) for job, key, _ in self._settled]
        for line in (*lines, *(line for job in self._over for line in released(job.state, duplicates))):
            if line is not None:
                duplicates.take(line)
                views.append(DuplicateLine(line))
        self._settled.clear()
        self._over.clear()
        return views
