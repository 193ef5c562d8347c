"""Parked calls of cancelled jobs: nobody waits for a human's word on them any more."""

from aetheris.ledger.core import settlement
from aetheris.ledger.core.decisions import Decision
from aetheris.ledger.core.live_jobs import LiveJob, LiveJobs
from aetheris.ledger.core.settlement import JobKey
from aetheris.protocol.fold.start import is_stopped
from aetheris.protocol.fold.state import KeyStatus


class Cancellations:
    """Of one partition; `given_up` holds the keys that the next `decide` settles, with their jobs."""

    def __init__(self, live_jobs: LiveJobs) -> None:
        self._live_jobs = live_jobs
        self.given_up: dict[tuple[str, str], None] = {}

    def give_up(self, job: LiveJob) -> None:
        """A cancel waits for no human's word on what is parked; what undoes something goes on."""
        if job.state.cancel is None or not self._live_jobs.is_restored:
            return
        for key in job.parked.values():
            entry = job.state.entry(job.state.keys[key].node_id)
            if entry is not None and is_stopped(job.state, entry):
                self.given_up[job.state.job_id, key] = None

    def decided(self) -> list[Decision]:
        """Their ends."""
        given_up, self.given_up = self.given_up, {}
        decided: list[Decision] = []
        for job_id, key in given_up:
            job = self._live_jobs.jobs.get(job_id)
            if job is not None and job.state.cancel is not None and job.state.keys[key].status is KeyStatus.PARKED:
                decided.append(settlement.cancelled(JobKey(job.state, key, job.state.keys[key]), job.state.cancel))
        return decided
