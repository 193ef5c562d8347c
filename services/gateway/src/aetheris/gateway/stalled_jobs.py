"""A tenant's jobs that stand still, each with why: doubts, what is parked, paused or frozen, what waits for whom."""

from aetheris.gateway.core.principal import Principal
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.long_jobs import LongJobs
from aetheris.gateway.views import JobQuery, Row, Views
from aetheris.protocol.api_operations import StalledJob, StalledJobs
from aetheris.protocol.fold.state import KeyStatus
from aetheris.runtime.base.clock import Clock
from aetheris.views import standing

LOOKED_AT = 50
"""Of each status, the newest."""
STATUSES = ("needs_upgrade", "waiting", "frozen", "paused", "running", "submitted")
"""Of jobs that have not ended, those that say most of standing still first."""


class StalledJobList:
    """Nothing is kept: it follows from the logs of the jobs."""

    def __init__(self, views: Views, jobs: LongJobs, deadlines: Deadlines, clock: Clock) -> None:
        self._views = views
        self._jobs = jobs
        self._deadlines = deadlines
        self._clock = clock

    async def view(self, caller: Principal) -> StalledJobs:
        """Those of the caller's tenant, as far as they are read in half the time that a request has.

        Raises:
            Unavailable.
        """
        found: list[StalledJob] = []
        is_whole = True
        async with self._deadlines.deadline():
            ends_s = self._clock.monotonic() + self._deadlines.request_s / 2
            for status in STATUSES:
                page = await self._views.page(caller.tenant, JobQuery(status), None, LOOKED_AT)
                is_whole = is_whole and page.cursor is None
                for row in page.rows:
                    if self._clock.monotonic() > ends_s:
                        return StalledJobs(jobs=tuple(found), is_whole=False)
                    stalled = await self._stalled(row)
                    found += [stalled] if stalled is not None else []
        return StalledJobs(jobs=tuple(found), is_whole=is_whole)

    async def _stalled(self, row: Row) -> StalledJob | None:
        state = await self._jobs.state(row)
        if state is None or state.terminal is not None:
            return None
        why = standing.job_view(state, row.created_at).get("why")
        doubts = sum(key.status is KeyStatus.STARTED and bool(key.in_doubt) for key in state.keys.values())
        parked = sum(key.status is KeyStatus.PARKED for key in state.keys.values())
        if why is None and not doubts and not parked:
            return None
        return StalledJob(
            job_id=row.job_id,
            status=standing.job_status(state),
            created_at=row.created_at,
            why=why or "",
            in_doubt=doubts,
            parked=parked,
        )
