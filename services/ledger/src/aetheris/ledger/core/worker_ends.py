"""Ends of workers that the table tells of: recorded in each job that they had begun a call of."""

from aetheris.ledger.core import settlement
from aetheris.ledger.core.decisions import Decision
from aetheris.ledger.core.live_jobs import CurrentInvocation, LiveJob, LiveJobs, WorkerLife


class WorkerEnds:
    """Of one partition; `unrecorded` holds those that the next `decide` writes, by job and life."""

    def __init__(self, live_jobs: LiveJobs) -> None:
        self._live_jobs = live_jobs
        self.unrecorded: dict[tuple[str, WorkerLife], None] = {}

    def take(self, life: WorkerLife) -> None:
        """A worker has ended."""
        for job in self._live_jobs.jobs.awake():
            if any(
                isinstance(invocation, CurrentInvocation) and invocation.life == life
                for invocation in job.keys.values()
            ):
                self.announce(job, life)

    def announce(self, job: LiveJob, life: WorkerLife) -> None:
        """Record it in the job, where nobody has yet."""
        if life not in job.announced and life not in job.state.ended_workers:
            job.announced.add(life)
            self.unrecorded[job.state.job_id, life] = None

    def decided(self) -> list[Decision]:
        """What is recorded of them now."""
        unrecorded, self.unrecorded = self.unrecorded, {}
        jobs, ended = self._live_jobs.jobs, self._live_jobs.ended
        return [settlement.worker_ended(job_id, life, ended[life]) for job_id, life in unrecorded if job_id in jobs]
