"""What schedulers tell of themselves: a hash per tenant in Redis, as they told it last. Nothing rests on it; what Redis
loses is told again within a minute, but for what was started before a restart."""

from collections.abc import Mapping
from typing import Any

from aetheris.gateway.core import bodies, schedulers
from aetheris.gateway.core.cursors import of_tenant
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.views import Views, ViewsLost
from aetheris.protocol.api_schedules import ReportTaken, ScheduleList, SchedulerReport
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.redis.client import Redis

_KEPT_MS = round(schedulers.KEPT.total_seconds() * 1000)


class ToldSchedules:
    """Of all tenants, each for itself."""

    def __init__(self, redis: Redis, views: Views, deadlines: Deadlines, clock: Clock) -> None:
        self._redis = redis
        self._views = views
        self._deadlines = deadlines
        self._clock = clock
        self._names = redis.named("aetheris:gateway:schedulers:")

    async def tell(self, caller: Principal, raw: bytes) -> ReportTaken:
        """Keep what a scheduler of the caller's tells; raises BadRequest, Conflict, Unavailable."""
        report = bodies.read(SchedulerReport, raw)
        async with self._deadlines.deadline():
            kept = schedulers.read(await self._kept(caller.tenant))
            found = schedulers.replacement(kept, caller.id, report, self._clock.now())
            key = self._key(caller.tenant)
            commands: list[Any] = [("HSET", key, found.field, found.told.model_dump_json())]
            commands += [("HDEL", key, *found.gone)] if found.gone else []
            await self._redis.pipeline([*commands, ("PEXPIRE", key, _KEPT_MS)])
        return ReportTaken(scheduler=report.scheduler)

    async def view(self, caller: Principal) -> ScheduleList:
        """Those of the caller's tenant, with how the jobs stand that they started last; raises Unavailable."""
        async with self._deadlines.deadline():
            kept = schedulers.read(await self._kept(caller.tenant)).values()
            named = {start.last.job_id for one in kept for start in one.report.starts if start.last is not None}
            jobs = await self._standing(sorted(named))
        return ScheduleList(schedulers=schedulers.shown(kept, caller.tenant, jobs, self._clock.now()))

    async def _standing(self, job_ids: list[str]) -> Mapping[str, schedulers.JobStanding]:
        """As far as the lists can say it now: what is scheduled is shown without them."""
        try:
            rows = await self._views.rows(job_ids)
        except ViewsLost:
            return {}
        return {row.job_id: schedulers.JobStanding(row.tenant, row.submitted_by, row.status) for row in rows}

    async def _kept(self, tenant: str) -> Mapping[str, bytes]:
        (flat,) = await self._redis.pipeline([("HGETALL", self._key(tenant))])
        return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}

    def _key(self, tenant: str) -> str:
        return self._names + of_tenant(tenant)
