"""What each tenant may ask for, held against what it has: rates in this process, open jobs by the lists in Redis."""

from collections import OrderedDict
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import structlog

from aetheris.gateway.core import quotas
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import TooMany, Unavailable
from aetheris.gateway.core.quotas import LimitsFault, Quotas, RateLimits
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.views import Views
from aetheris.protocol.api_budgets import QuotaList, TenantQuotas
from aetheris.protocol.api_operations import LimitView
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.redis.client import RedisUnavailable
from aetheris.runtime.telemetry.metrics import Metric, Metrics

_log = structlog.get_logger(__name__)

COUNTED_EVERY_S = 1.0
_MOST_TENANTS = 10_000
_MOST_SHOWN = 200


class LimitsFileInvalid(StartRefused):
    """The file of limits can't be used; the message names the field."""

    code = "limits_file_invalid"


def quotas_of(path: Path) -> Quotas:
    """The limits of a file.

    Raises:
        LimitsFileInvalid: naming the field that is wrong.
    """
    try:
        return quotas.parsed(path.read_text())
    except OSError as error:
        raise LimitsFileInvalid(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LimitsFileInvalid(f"{path}: not valid TOML") from None
    except LimitsFault as error:
        raise LimitsFileInvalid(f"{path}: {error}") from None


@dataclass(slots=True)
class _Counted:
    """A tenant's open jobs as they were counted, and those taken since."""

    open_jobs: int
    at_s: float


class Limiter:
    """No rule of safety: where Redis can't count, nobody is refused; several gateways have each its own rates."""

    def __init__(self, limits: Quotas, views: Views, deadlines: Deadlines, metrics: Metrics, clock: Clock) -> None:
        self._limits = RateLimits(limits)
        self._views = views
        self._deadlines = deadlines
        self._metrics = metrics
        self._clock = clock
        self._counted: OrderedDict[str, _Counted] = OrderedDict()

    def admit(self, caller: Principal) -> None:
        """One request; raises TooMany."""
        with self._told():
            self._limits.check("requests_per_s", caller.tenant, caller.id, self._clock.monotonic())

    def take_submission(self, tenant: str, who: str) -> None:
        """One submission, new or repeated: each is laid into the log; raises TooMany."""
        with self._told():
            self._limits.check("jobs_per_s", tenant, who, self._clock.monotonic())

    async def take_room(self, tenant: str) -> None:
        """One job more is open; raises TooMany."""
        counted = await self._room(tenant)
        if counted is not None:
            counted.open_jobs += 1

    async def _room(self, tenant: str) -> _Counted | None:
        if self._limits.quotas.of(tenant).open_jobs is None:
            return None
        counted = await self._count(tenant)
        with self._told():
            self._limits.check_open(tenant, counted.open_jobs)
        return counted

    async def shown(self, caller: Principal) -> dict[str, Any]:
        """The caller's limits, how much of each is left, and his tenant's open jobs by status.

        Raises:
            Unavailable.
        """
        async with self._deadlines.deadline():
            jobs = await self._views.open_jobs(caller.tenant)
        states = self._limits.states(caller.tenant, caller.id, sum(jobs.values()), self._clock.monotonic())
        return {"tenant": caller.tenant, "limits": [asdict(one) for one in states], "open_jobs": jobs}

    async def all_tenants(self, known: Iterable[str]) -> QuotaList:
        """Those of the tenants that are known of, and of those that the file names; raises Unavailable."""
        names = sorted({*known, *self._limits.quotas.tenants})
        found: list[TenantQuotas] = []
        async with self._deadlines.deadline():
            for name in names[:_MOST_SHOWN]:
                jobs = await self._views.open_jobs(name)
                states = self._limits.states_of(name, sum(jobs.values()), self._clock.monotonic())
                limits = tuple(LimitView.model_validate(asdict(one)) for one in states)
                found.append(TenantQuotas(tenant=name, limits=limits, open_jobs=jobs))
        return QuotaList(tenants=tuple(found), left_out=len(names) - len(found))

    async def _count(self, tenant: str) -> _Counted:
        """The tenant's open jobs, counted now or lately; without Redis as they were counted last."""
        known = self._counted.pop(tenant, None) or _Counted(0, float("-inf"))
        self._counted[tenant] = known
        if len(self._counted) > _MOST_TENANTS:
            self._counted.popitem(last=False)
        now_s = self._clock.monotonic()
        if now_s - known.at_s >= COUNTED_EVERY_S:
            known.at_s = now_s  # who comes meanwhile needs not ask as well
            try:
                known.open_jobs = sum((await self._views.open_jobs(tenant)).values())
            except (RedisUnavailable, Unavailable) as error:
                _log.warning("open jobs not counted", reason=error.code)
        return known

    @contextmanager
    def _told(self) -> Generator[None]:
        try:
            yield
        except TooMany as refused:
            self._metrics.count(Metric.LIMITED, limit=str(refused.details["limit"]))
            raise
