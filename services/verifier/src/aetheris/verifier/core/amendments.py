"""What came behind a job's seal: which job is looked at next, when it may be amended, up to where it holds the log."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush
from math import inf

from aetheris.proofs import RawRecord, Violation
from aetheris.proofs.due_amendments import DueAmendment, due_amendment
from aetheris.proofs.evidence import judge_whole
from aetheris.proofs.execution import LoadBlob
from aetheris.proofs.trust import TrustedKey, moment
from aetheris.protocol.fold.provenance import JobSigners

LONGEST_PAUSE = timedelta(hours=1)
"""Between two amendments of a job at most; at least as long as it has been sealed by the last, so there are few."""


@dataclass(slots=True)
class LateJob:
    """A job with records behind its seal that nobody has judged, or that no seal covers yet."""

    job_id: str
    held_from: int
    """The offset from which on the log is still needed for it."""
    last: int
    """Of those records the last that is known."""
    since: int
    """Of those records the first that came late."""
    due_s: float = 0.0
    """When it is looked at, by the clock that does not jump."""
    first_look_s: float | None = None
    paused_s: float | None = None
    """Since when an amendment of it waits for its time."""
    told: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    """(rule, offset) of the violations that are in the log, or on their way there."""
    vain: int = 0
    """How often, one time after another, it could not be read."""


class LateJobs:
    """The late jobs of one partition. Anybody may write behind a seal: each costs a look, and no memory behind it."""

    def __init__(self) -> None:
        self._jobs: dict[str, LateJob] = {}
        self._queue: list[tuple[float, int, str]] = []
        """A heap by when they are due; what a job's own time differs from is out of date."""
        self._queued = 0

    def note(self, job_id: str, offset: int, held_from: int | None = None) -> None:
        """Something came behind a job's seal; it is looked at as soon as it may be."""
        job = self._jobs.get(job_id)
        if job is None:
            job = self._jobs[job_id] = LateJob(job_id, offset if held_from is None else held_from, offset, offset)
            self.look_at(job, 0.0)
        else:
            job.last = max(job.last, offset)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    def next_due(self, now_s: float) -> LateJob | None:
        """The job whose look has been due for longest."""
        job = self._first()
        return job if job is not None and job.due_s <= now_s else None

    def next_s(self) -> float | None:
        """When a look is due; None where nothing is to be looked at."""
        job = self._first()
        return job.due_s if job is not None and job.due_s < inf else None

    def look_at(self, job: LateJob, due_s: float) -> None:
        """When it is looked at next."""
        job.due_s = due_s
        self._queued += 1
        heappush(self._queue, (due_s, self._queued, job.job_id))

    def _first(self) -> LateJob | None:
        while self._queue:
            due_s, _, job_id = self._queue[0]
            job = self._jobs.get(job_id)
            if job is not None and job.due_s == due_s:
                return job
            heappop(self._queue)
        return None

    def settle(self, job: LateJob, upto: int) -> None:
        """Nothing is to be amended up to an offset: the job is let go, unless more has come since."""
        if job.last > upto:
            job.held_from, job.since, job.first_look_s, job.paused_s = upto + 1, upto + 1, None, None
            self.look_at(job, 0.0)
        else:
            self._jobs.pop(job.job_id, None)

    @property
    def unread(self) -> int:
        """How many of them could not be read when they were looked at last."""
        return sum(job.vain > 0 for job in tuple(self._jobs.values()))

    def held(self) -> Iterator[tuple[str, int]]:
        """Each job, with the offset from which on the log is still needed for it."""
        return ((job.job_id, job.held_from) for job in self._jobs.values())


def may_amend_at(due: DueAmendment) -> datetime | None:
    """When the amendment may be made: at once the first time, then ever more seldom. By what the seals say of time."""
    first, last = moment(due.first_sealed_at), moment(due.last_sealed_at)
    if first is None or last is None:
        return None
    return last + min(max(last - first, timedelta(0)), LONGEST_PAUSE)


@dataclass(frozen=True, slots=True)
class LateJudgement:
    """What comes of a job with what lies behind its seal."""

    untold: tuple[Violation, ...]
    """What breaks a rule, and is in no record of ours yet."""
    due: DueAmendment | None
    signers: JobSigners | None
    """What its records are signed by; None where they are not."""


def judged_late(records: Sequence[RawRecord], keys: Sequence[TrustedKey], load_blob: LoadBlob) -> LateJudgement:
    """Judge all of a sealed job, and what of it its seals should cover; blocks while it loads large results."""
    judged = judge_whole(records, keys, load_blob)
    facts, authors = judged.history.facts, judged.history.authors
    told = {(fact.text("rule"), fact.body.get("offset")) for fact in facts if fact.type == "violation_found"}
    fresh = tuple(one for one in judged.report.violations if (one.rule, one.offset) not in told)
    root = authors.installation
    signers = None if root is None else JobSigners(root, authors.born, revoked=authors.revoked)
    return LateJudgement(fresh, due_amendment(records, keys, load_blob), signers)
