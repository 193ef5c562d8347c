"""The lines of ledger.records and ledger.contents that follow from settlements, and from ends of jobs."""

from collections import Counter, deque

from aetheris.ledger.core.decisions import Decision, DuplicateLine, Now, View
from aetheris.ledger.core.duplicate_index import released, settled
from aetheris.ledger.core.live_jobs import LiveJob, LiveJobs
from aetheris.ledger.core.records import record_of
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.commands import ContentRecord

VIEWS_AFTER_RESTART = 10_000
"""Settlements of the history's end whose lines in ledger.records are written again: a crash may have lost them."""


class SettledLines:
    """Of one partition: what has been settled, and which jobs have ended, since the last `decide`.

    What was settled names its job: one that rests meanwhile stays so.
    """

    def __init__(self, live_jobs: LiveJobs) -> None:
        self.written = -1
        """Up to this record of the history lines were written, by a ledger that may have been of an earlier version."""
        self._live_jobs = live_jobs
        self._settled: deque[tuple[str, str, int]] = deque()
        """Job, key, and where it was settled."""
        self._left: Counter[str] = Counter()
        """How much of it each job has."""
        self._sealed: dict[str, LiveJob] = {}
        """Those of these jobs that are live no more."""
        self._over: list[LiveJob] = []

    @property
    def unwritten(self) -> bool:
        """Whether there are any."""
        return bool(self._settled or self._over)

    def settled(self, job: LiveJob, key: str) -> None:
        """A key was settled by the event that is being folded."""
        job_id, offset = job.state.job_id, self._live_jobs.folded
        if offset <= self.written and not _is_guarded(job.state, key):
            return
        self._settled.append((job_id, key, offset))
        self._left[job_id] += 1
        if not self._live_jobs.is_restored and len(self._settled) > VIEWS_AFTER_RESTART:
            self._let_go(self._settled.popleft()[0])

    def over(self, job: LiveJob) -> None:
        """A job has ended."""
        if any(pin.duplicate_scope != "job" for pin in job.state.tools.values()):
            self._over.append(job)

    def sealed(self, job: LiveJob) -> None:
        """A job is about to be forgotten."""
        if job.state.job_id in self._left:
            self._sealed[job.state.job_id] = job

    def decided(self, now: Now) -> list[Decision]:
        """The lines."""
        views: list[Decision] = []
        lines: list[ContentRecord | None] = []
        duplicates = self._live_jobs.context.duplicates
        for job_id, key, offset in self._settled:
            job = self._sealed.get(job_id) or self._live_jobs.jobs.peek(job_id)
            if job is not None:
                views.append(View(record_of(job.state, key, offset)))
                lines.append(settled(job.state, key, duplicates, now))
        for line in (*lines, *(line for job in self._over for line in released(job.state, duplicates))):
            if line is not None:
                duplicates.take(line)
                views.append(DuplicateLine(line))
        self._settled.clear()
        self._left.clear()
        self._sealed.clear()
        self._over.clear()
        return views

    def _let_go(self, job_id: str) -> None:
        self._left[job_id] -= 1
        if not self._left[job_id]:
            del self._left[job_id]
            self._sealed.pop(job_id, None)


def _is_guarded(job: JobState, key: str) -> bool:
    """Whether calls of other jobs are held against it: what it came to is said once too often rather than never."""
    entry = job.entry(job.keys[key].node_id)
    return entry is not None and entry.pin is not None and entry.pin.duplicate_scope != "job"
