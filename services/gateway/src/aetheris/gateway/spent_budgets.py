"""What a tenant's jobs spent of their rules' budgets and of their models' limits: read from the jobs' own records.

No budget is of more than one job, so what several spent together limits nothing; people see it here.
"""

import asyncio
from collections import OrderedDict
from datetime import datetime

from aetheris.gateway.core import spendings
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.spendings import Budgets, SpentJob
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.views import JobQuery, Row, Views
from aetheris.protocol.api_budgets import BudgetsView
from aetheris.protocol.fold.sealed_part import as_sealed
from aetheris.protocol.planning.policy import Policy, parse
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.order_table import OrderTable
from aetheris.views.spending import Spending, spending

LOOKED_AT = 300
"""Jobs, the newest."""
_PAGE = 50
_MOST_KEPT = 5_000
"""Sealed jobs whose spending is kept: it changes no more."""


class SpentBudgets:
    """As far as a tenant's jobs are read in half the time that a request has."""

    def __init__(
        self,
        *,
        reader: JobReader,
        views: Views,
        activated: OrderTable[PolicyActivations],
        configured: Policy,
        deadlines: Deadlines,
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._views = views
        self._activated = activated
        self._deadlines = deadlines
        self._clock = clock
        self._budgets: tuple[int, Budgets] = (0, spendings.budgets_of(configured))
        self._kept: OrderedDict[str, Spending | None] = OrderedDict()

    async def view(self, caller: Principal, since: datetime | None) -> BudgetsView:
        """Of the caller's tenant, of the jobs that were created since then; raises Unavailable."""
        query = JobQuery(since=since)
        found: list[SpentJob] = []
        looked_at, cursor = 0, None
        async with self._deadlines.deadline():
            budgets = await self._in_force()
            ends_s = self._clock.monotonic() + self._deadlines.request_s / 2
            while looked_at < LOOKED_AT:
                page = await self._views.page(caller.tenant, query, cursor, _PAGE)
                for row in page.rows:
                    if self._clock.monotonic() > ends_s:
                        return spendings.spendings(found, caller.tenant, budgets, looked_at, is_whole=False)
                    looked_at += 1
                    spent = await self._spent(row)
                    found += [SpentJob(row.job_id, row.status, row.created_at, spent)] if spent is not None else []
                cursor = page.cursor
                if cursor is None:
                    break
        return spendings.spendings(found, caller.tenant, budgets, looked_at, is_whole=cursor is None)

    async def _spent(self, row: Row) -> Spending | None:
        if row.job_id in self._kept:
            self._kept.move_to_end(row.job_id)
            return self._kept[row.job_id]
        is_over = self._reader.sealed_line(row) is not None
        records = await self._reader.records(row, await self._reader.end(row.job_id))
        found = await asyncio.to_thread(lambda: spending(as_sealed(records)))
        if is_over:
            self._kept[row.job_id] = found
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return found

    async def _in_force(self) -> Budgets:
        """Of the policy that decides; none, where this gateway can't read it."""
        await self._activated.caught_up()
        last = self._activated.orders.active
        if last is not None and last.number != self._budgets[0]:
            self._budgets = last.number, await asyncio.to_thread(_budgets_of, last.policy)
        return self._budgets[1]


def _budgets_of(policy: str) -> Budgets:
    try:
        return spendings.budgets_of(parse(policy))
    except Exception:  # noqa: BLE001  one of a later version, or whatever else: no limit is known by it
        return {}
