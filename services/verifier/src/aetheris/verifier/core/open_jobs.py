"""Which jobs that have not ended get an interim seal now: when they are parked, and from time to time (pure)."""

from collections import defaultdict
from collections.abc import Iterable

from aetheris.proofs.log_lines import MOST
from aetheris.verifier.core.partition import AuditedJobTable, OpenJob, open_job

FIRST_S = 60.0
"""After a start, at most, jobs that were open before are sealed: who restarts often is late for none."""


class OpenJobs:
    """Of a partition; times are those of a monotonic clock, in seconds."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._due_s: float | None = None
        self._parked: dict[str, None] = {}

    def start(self, now_s: float) -> float:
        """When the first round is due."""
        self._due_s = now_s + min(self._every_s, FIRST_S)
        return self._due_s

    def parked(self, job_id: str) -> None:
        """A call of it waits for a person: it is sealed with the next line."""
        self._parked[job_id] = None

    def due(self, jobs: AuditedJobTable, now_s: float) -> list[OpenJob]:
        """Those to seal now; the next round is counted from here."""
        parked, self._parked = self._parked, {}
        if self._due_s is not None and now_s >= self._due_s:
            self._due_s = now_s + self._every_s
            return [job for _, job in jobs.briefs() if job is not None]
        return [job for job_id in parked if job_id in jobs and (job := open_job(jobs[job_id])) is not None]

    def again(self, jobs: Iterable[OpenJob]) -> None:
        """They could not be sealed now."""
        self._parked |= {job.job_id: None for job in jobs}

    def next_due_s(self) -> float | None:
        """When the next round is due."""
        return self._due_s


def lines(jobs: Iterable[OpenJob]) -> list[tuple[str, list[OpenJob]]]:
    """(tenant, its jobs), as many of each as a line may hold."""
    by_tenant: dict[str, list[OpenJob]] = defaultdict(list)
    for job in jobs:
        by_tenant[job.tenant].append(job)
    return [(tenant, own[at : at + MOST]) for tenant, own in by_tenant.items() for at in range(0, len(own), MOST)]
