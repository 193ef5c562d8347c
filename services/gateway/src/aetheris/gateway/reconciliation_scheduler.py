"""Reconciliation by the clock: ended jobs' effects are compared with the external system again (docs/confirmation.md).

Several gateways share the turns in Redis. Where those are lost a job is looked at once more, which changes nothing.
"""

from collections.abc import Callable, Collection
from datetime import datetime

import structlog

from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import Problem
from aetheris.gateway.core.reconciliations import Schedule
from aetheris.gateway.reads import Reads
from aetheris.gateway.reconciliation import Reconciliation
from aetheris.gateway.views import JobQuery, Row, Views
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.redis.client import RedisUnavailable

_log = structlog.get_logger(__name__)

NAME = "schedule"
"""The `by` of the commands."""
LONGEST_PAUSE_S = 30.0
_PAGE = 200


class ReconciliationScheduler:
    """Looks through the tenants' jobs, one job at a time."""

    def __init__(
        self,
        *,
        reads: Reads,
        reconciliation: Reconciliation,
        views: Views,
        tenants: Callable[[], Collection[str]],
        schedule: Schedule,
        clock: Clock,
    ) -> None:
        self._reads = reads
        self._reconciliation = reconciliation
        self._views = views
        self._tenants = tenants
        self._schedule = schedule
        self._clock = clock

    async def run(self) -> None:
        """Go round until cancelled."""
        pause_s = min(self._schedule.every.total_seconds(), LONGEST_PAUSE_S)
        while True:
            await self._clock.sleep(pause_s)
            for caller in map(_caller, sorted(self._tenants())):
                try:
                    await self._reconcile_tenant(caller)
                except (Problem, RedisUnavailable) as error:
                    _log.warning("round of reconciliation broken off", tenant=caller.tenant, reason=error.code)

    async def _reconcile_tenant(self, caller: Principal) -> None:
        """A tenant's jobs, newest first, until they are too old."""
        cursor: str | None = None
        while True:
            page = await self._reads.page(caller, JobQuery(), cursor, _PAGE)
            for row in page.rows:
                if self._schedule.over(_created(row), self._clock.now()):
                    return
                await self._look_at(caller, row)
            cursor = page.cursor
            if cursor is None:
                return

    async def _look_at(self, caller: Principal, row: Row) -> None:
        if not self._schedule.due(row.status, _created(row), self._clock.now()):
            return
        if not await self._views.take_turn(row.job_id, round(self._schedule.every.total_seconds() * 1000)):
            return
        found = (await self._reconciliation.reconcile(caller, row.job_id, asked=False)).answer
        if found.failed:
            _log.warning("not as it was left", job_id=row.job_id, failed=found.failed)


def _caller(tenant: str) -> Principal:
    return Principal(NAME, tenant, PrincipalKind.SERVICE, frozenset({Role.READ, Role.OPERATE}))


def _created(row: Row) -> datetime:
    return datetime.fromisoformat(row.created_at)
