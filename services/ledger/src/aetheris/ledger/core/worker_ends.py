"""Ends of workers that the table tells of: recorded in each job that they had begun a call of."""

from aetheris.ledger.core import settlement
from aetheris.ledger.core.decisions import Decision
from aetheris.ledger.core.memory import LiveJob, PartitionMemory, Started, WorkerLife


class WorkerEnds:
    """Of one partition; `unrecorded` holds those that the next `decide` writes, by job and life."""

    def __init__(self, memory: PartitionMemory) -> None:
        self._memory = memory
        self.unrecorded: dict[tuple[str, WorkerLife], None] = {}

    def take(self, life: WorkerLife) -> None:
        """A worker has ended."""
        for job in self._memory.jobs.values():
            if any(isinstance(tried, Started) and tried.life == life for tried in job.keys.values()):
                self.announce(job, life)

    def announce(self, job: LiveJob, life: WorkerLife) -> None:
        """Record it in the job, where nobody has yet."""
        if life not in job.announced and life not in job.state.ended_workers:
            job.announced.add(life)
            self.unrecorded[job.state.job_id, life] = None

    def decided(self) -> list[Decision]:
        """What is recorded of them now."""
        unrecorded, self.unrecorded = self.unrecorded, {}
        jobs, ended = self._memory.jobs, self._memory.ended
        return [settlement.worker_ended(job_id, life, ended[life]) for job_id, life in unrecorded if job_id in jobs]
