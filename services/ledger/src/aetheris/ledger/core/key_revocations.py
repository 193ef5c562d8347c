"""Keys that a root has revoked: each job that lives, and each new one, gets the root's word (docs/adr/0009)."""

from collections.abc import Iterator

from aetheris.ledger.core.decisions import Decision, Emit
from aetheris.ledger.core.live_jobs import LiveJobs
from aetheris.ledger.core.settlement import written


class KeyRevocations:
    """Of one partition. A job that its planner gave the word at its birth lacks nothing."""

    def __init__(self, live_jobs: LiveJobs) -> None:
        self._live_jobs = live_jobs
        self._told = live_jobs.context.revocations
        self._looked_at: dict[str, None] = {}

    def look(self, job_id: str) -> None:
        """A job is created, or was read from history: whether it carries what this process is told of."""
        if self._told:
            self._looked_at[job_id] = None

    @property
    def is_due(self) -> bool:
        """Whether something is to be written now."""
        return self._live_jobs.is_restored and bool(self._looked_at)

    def decided(self) -> Iterator[Decision]:
        """What jobs lack."""
        if not self._live_jobs.is_restored:
            return
        looked_at, self._looked_at = self._looked_at, {}
        for job_id in looked_at:
            job = self._live_jobs.jobs.peek(job_id)
            if job is None or job.state.terminal is not None or job.state.sealed or job.state.needs_upgrade:
                continue
            events = tuple(written(event, event.key_id) for event in self._told.lacking(job.state))
            if events:
                yield Emit(job_id, events)
