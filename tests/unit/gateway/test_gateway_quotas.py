"""What a tenant may ask for: rates of principals and tenants, open jobs; a refusal uses nothing up."""

import pytest

from aetheris.gateway.core import quotas
from aetheris.gateway.core.problems import TooMany
from aetheris.gateway.core.quotas import LimitsFault, RateLimits

FILE = """
[tenant]
requests_per_s = 4
open_jobs = 3
[token]
requests_per_s = 2
jobs_per_s = 0.1
[tenants.big]
open_jobs = 1000
token = { requests_per_s = 100 }
"""


@pytest.fixture
def limits() -> RateLimits:
    return RateLimits(quotas.parsed(FILE))


def requests(limits: RateLimits, count: int, tenant: str, who: str, now_s: float = 0.0) -> list[tuple[str, int] | None]:
    """Which limit refused each, and for how long."""
    return [refused(limits, "requests_per_s", tenant, who, now_s) for _ in range(count)]


def refused(limits: RateLimits, rate: str, tenant: str, who: str, now_s: float) -> tuple[str, int] | None:
    try:
        limits.check(rate, tenant, who, now_s)
    except TooMany as found:
        return str(found.details["limit"]), found.retry_after_s
    return None


def test_a_principal_beyond_his_rate_is_told_when_to_come_again(limits: RateLimits) -> None:
    assert requests(limits, 12, "acme", "ann") == [None] * 10 + [("token.requests_per_s", 1)] * 2
    assert requests(limits, 2, "acme", "ann", 0.5) == [None, ("token.requests_per_s", 1)]


def test_the_principals_of_a_tenant_share_its_rate_and_no_other_tenant_feels_it(limits: RateLimits) -> None:
    assert requests(limits, 10, "acme", "ann") + requests(limits, 10, "acme", "bob") == [None] * 20
    assert requests(limits, 3, "acme", "eve") == [("tenant.requests_per_s", 1)] * 3
    assert requests(limits, 10, "other", "ann") == [None] * 10
    # What the tenant's limit refused was not counted as hers.
    assert requests(limits, 4, "acme", "eve", 1.0) == [None] * 4


def test_new_jobs_have_a_rate_of_their_own(limits: RateLimits) -> None:
    assert refused(limits, "jobs_per_s", "acme", "ann", 0.0) is None
    assert refused(limits, "jobs_per_s", "acme", "ann", 0.0) == ("token.jobs_per_s", 10)
    assert refused(limits, "jobs_per_s", "acme", "ann", 10.0) is None


def test_a_tenant_with_a_table_of_its_own_has_those_limits_alone(limits: RateLimits) -> None:
    assert requests(limits, 500, "big", "ann") == [None] * 500
    assert refused(limits, "jobs_per_s", "big", "ann", 0.0) is None
    assert refused(limits, "jobs_per_s", "big", "ann", 0.0) is None
    limits.check_open("big", 999)
    with pytest.raises(TooMany):
        limits.check_open("acme", 3)
    limits.check_open("acme", 2)


def test_what_is_left_is_shown(limits: RateLimits) -> None:
    requests(limits, 3, "acme", "ann")
    found = {one.name: (one.limit, one.left) for one in limits.states("acme", "ann", 1, 0.0)}
    assert found == {
        "token.requests_per_s": (2.0, 7),
        "tenant.requests_per_s": (4.0, 17),
        "token.jobs_per_s": (0.1, 1),
        "tenant.jobs_per_s": (None, None),
        "tenant.open_jobs": (3, 2),
    }


def test_without_a_file_nobody_is_limited() -> None:
    free = RateLimits(quotas.parsed(""))
    assert requests(free, 10_000, "acme", "ann") == [None] * 10_000
    free.check_open("acme", 10**6)


@pytest.mark.parametrize(
    ("text", "wording"),
    [
        ("[tenant", "not valid TOML"),
        ("[tenant]\nrequests = 1", "tenant.requests"),
        ("[token]\nrequests_per_s = 0", "token.requests_per_s"),
        ("[token]\nopen_jobs = 3", "token.open_jobs"),
        ("[tenants.acme]\nopen_jobs = 0", "tenants.acme.open_jobs"),
        ("[tenants.acme.token]\njobs_per_s = nan", "tenants.acme.token.jobs_per_s"),
    ],
)
def test_a_wrong_file_is_named_by_its_field(text: str, wording: str) -> None:
    with pytest.raises(LimitsFault, match=wording):
        quotas.parsed(text)
