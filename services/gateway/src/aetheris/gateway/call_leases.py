"""Calls that are under way, each with its lease: as Redis has it now, and no evidence of anything."""

from collections.abc import Iterator
from dataclasses import dataclass

from aetheris.gateway.core.principal import Principal
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.long_jobs import LongJobs
from aetheris.gateway.views import JobQuery, Row, Views
from aetheris.protocol.api_operations import LeasedCall, LeaseList
from aetheris.protocol.fold.state import JobState, KeyStatus
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.redis.leases import Leases

LOOKED_AT = 50
"""Of each status, the newest."""
MOST_SHOWN = 500
_STATUSES = ("running", "waiting", "frozen", "paused")


@dataclass(frozen=True, slots=True)
class _Call:
    key: str
    shown: LeasedCall


class CallLeases:
    """Nothing is kept: which calls are under way follows from the jobs' logs, and who renews what Redis says."""

    def __init__(self, reader: JobReader, views: Views, *, leases: Leases, deadlines: Deadlines, clock: Clock) -> None:
        self._reader = reader
        self._views = views
        self._jobs = LongJobs(reader)
        self._leases = leases
        self._deadlines = deadlines
        self._clock = clock

    async def of_job(self, caller: Principal, job_id: str) -> LeaseList:
        """Those of one job; raises NotFound, Forbidden, Unavailable."""
        async with self._deadlines.deadline():
            found = await self._of(await self._reader.row(caller, job_id))
            return await self._leased(found[:MOST_SHOWN], is_whole=len(found) <= MOST_SHOWN)

    async def view(self, caller: Principal) -> LeaseList:
        """Those of the tenant's open jobs, as far as they are read in time; raises Unavailable."""
        found: list[_Call] = []
        is_whole = True
        async with self._deadlines.deadline():
            ends_s = self._clock.monotonic() + self._deadlines.request_s / 2
            for status in _STATUSES:
                page = await self._views.page(caller.tenant, JobQuery(status), None, LOOKED_AT)
                is_whole = is_whole and page.cursor is None
                for row in page.rows:
                    if self._clock.monotonic() > ends_s or len(found) >= MOST_SHOWN:
                        return await self._leased(found[:MOST_SHOWN], is_whole=False)
                    found += await self._of(row)
            return await self._leased(found[:MOST_SHOWN], is_whole=is_whole and len(found) <= MOST_SHOWN)

    async def _of(self, row: Row) -> list[_Call]:
        state = await self._jobs.state(row)
        return list(_under_way(row.job_id, state)) if state is not None else []

    async def _leased(self, calls: list[_Call], *, is_whole: bool) -> LeaseList:
        lasting = await self._leases.lasting_s([call.key for call in calls])
        shown = (call.shown.model_copy(update={"ends_in_s": s}) for call, s in zip(calls, lasting, strict=True))
        return LeaseList(leases=tuple(shown), is_whole=is_whole)


def _under_way(job_id: str, state: JobState) -> Iterator[_Call]:
    for key, one in state.keys.items():
        if one.status is not KeyStatus.STARTED or one.current_invocation is None or one.started is None:
            continue
        shown = LeasedCall(
            job_id=job_id,
            node_id=one.node_id,
            tool=one.started.tool_name,
            worker_id=one.invocations[one.current_invocation].worker_id,
            token=one.fencing_token,
            in_doubt=one.in_doubt is not None,
        )
        yield _Call(key, shown)
