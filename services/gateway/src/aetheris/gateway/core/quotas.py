"""How much a tenant, and each of its principals, may ask for: what the file of limits says, and who is beyond it. Pure.

[tenant]
requests_per_s = 100
jobs_per_s = 20
open_jobs = 5000

[token]
requests_per_s = 20

[tenants.acme]
open_jobs = 50_000
token = { requests_per_s = 50 }
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aetheris.gateway.core.buckets import Bucket, Buckets, Limit, full
from aetheris.gateway.core.problems import TooMany
from aetheris.gateway.core.token_entries import Name

BURST_S = 5.0
"""Who has sent nothing for so long may send as much at once as he may in that time."""
_MOST_KNOWN = 10_000
_OPEN_AGAIN_S = 10
"""After so long it may be asked again whether a job has ended."""

Whose = tuple[str, str]
"""(tenant, principal's id)."""


class LimitsFault(ValueError):
    """The file can't be used; the message names the field."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Rates(_Strict):
    """What may come in a second, over five seconds; None: as much as there is."""

    requests_per_s: float | None = Field(default=None, gt=0, le=1e6)
    jobs_per_s: float | None = Field(default=None, gt=0, le=1e6, description="Submissions, repeats among them")


class TenantLimits(Rates):
    """Of all principals of a tenant together."""

    open_jobs: int | None = Field(default=None, ge=1, description="Jobs that have not ended")
    token: Rates | None = Field(default=None, description="Of each principal of this tenant, in place of [token]")


class Quotas(_Strict):
    """What a file of limits says; a tenant that it names has the limits of its own table, and no others."""

    tenant: TenantLimits = TenantLimits()
    token: Rates = Rates()
    tenants: Mapping[Name, TenantLimits] = Field(default_factory=dict[str, TenantLimits])

    def of(self, tenant: str) -> TenantLimits:
        """Those of a tenant."""
        return self.tenants.get(tenant, self.tenant)

    def of_token(self, tenant: str) -> Rates:
        """Those of each of its principals."""
        return self.of(tenant).token or self.token


def parsed(text: str) -> Quotas:
    """The limits of a file.

    Raises:
        LimitsFault: naming the field that is wrong.
    """
    try:
        return Quotas.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        raise LimitsFault("not valid TOML") from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise LimitsFault(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


@dataclass(frozen=True, slots=True)
class LimitState:
    """A limit, and how many more may come at once; None: as many as there are."""

    name: str
    limit: float | None
    left: int | None


class RateLimits:
    """Who has asked for how much lately, in this process: it protects what others get, and decides nothing else."""

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas
        self._buckets = Buckets[tuple[str, str, str | None]](2 * _MOST_KNOWN)

    def check(self, rate: str, tenant: str, who: str, now_s: float) -> None:
        """Count one request or new job (`rate` names the field).

        Raises:
            TooMany: naming the limit; nothing was counted.
        """
        found = [(name, bucket, limit) for name, bucket, limit in self._limits(rate, tenant, who) if limit is not None]
        place = full([(bucket, limit) for _, bucket, limit in found], now_s)
        if place is not None:
            name, bucket, limit = found[place]
            raise TooMany(name, f"{name} is {limit.per_s:g}: wait", bucket.wait_s(limit))

    def check_open(self, tenant: str, open_jobs: int) -> None:
        """Whether one job more may be open; raises TooMany."""
        most = self.quotas.of(tenant).open_jobs
        if most is not None and open_jobs >= most:
            message = f"tenant.open_jobs is {most}: wait for one to end"
            raise TooMany("tenant.open_jobs", message, _OPEN_AGAIN_S)

    def states(self, tenant: str, who: str, open_jobs: int, now_s: float) -> Iterator[LimitState]:
        """Each limit of a tenant, and of one of its principals."""
        for rate in Rates.model_fields:
            for name, bucket, limit in self._limits(rate, tenant, who):
                left = bucket.left(limit, now_s) if limit is not None else None
                yield LimitState(name, limit.per_s if limit is not None else None, left)
        most = self.quotas.of(tenant).open_jobs
        yield LimitState("tenant.open_jobs", most, None if most is None else max(0, most - open_jobs))

    def states_of(self, tenant: str, open_jobs: int, now_s: float) -> Iterator[LimitState]:
        """The same of a tenant; of each of its principals the limit alone."""
        for state in self.states(tenant, "", open_jobs, now_s):
            yield replace(state, left=None) if state.name.startswith("token.") else state

    def _limits(self, rate: str, tenant: str, who: str) -> Iterator[tuple[str, Bucket, Limit | None]]:
        """The principal's own first: where that is full, nothing of the tenant's is used up."""
        for kind, rates, key in (
            ("token", self.quotas.of_token(tenant), (rate, tenant, who)),
            ("tenant", self.quotas.of(tenant), (rate, tenant, None)),
        ):
            per_s: float | None = getattr(rates, rate)
            limit = None if per_s is None else Limit(max(1.0, per_s * BURST_S), per_s)
            yield f"{kind}.{rate}", self._buckets.of(key) if limit is not None else Bucket(), limit
