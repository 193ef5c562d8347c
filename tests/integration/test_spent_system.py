"""Budgets, tenants' limits and leases, on the whole system: what was spent, who may see it, and who is at work."""

from collections.abc import Generator
from typing import Any

import pytest

from aetheris.cli import token_files
from aetheris.protocol.base.principals import Role
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.policies import ALLOW_REST, ruled_by
from tests.testkit.rig import Rig, poke, running_rig
from tests.testkit.tokens import entry_of, headers_of

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(240)]

POLICY = f"""
[[rules]]
name = "few"
tools = ["poke_idempotent"]
effect = "allow"
budget = {{calls = 2}}
{ALLOW_REST}"""
LIMITS = "[tenant]\nopen_jobs = 5000\n[tenants.acme]\nopen_jobs = 7\n"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    folder = tmp_path_factory.mktemp("spent")
    (folder / "limits.toml").write_text(LIMITS)
    env = {**ruled_by(folder, POLICY), "AETHERIS_LIMITS": str(folder / "limits.toml")}
    with running_rig(folder, env) as rig:
        with token_files.changed(rig.system.data / "tokens.toml") as entries:
            entries.append(entry_of("reader", roles=[Role.READ]))
            entries.append(entry_of("auditor", roles=[Role.READ_PAYLOADS]))
            entries.append(entry_of("admin", roles=[Role.ADMINISTER]))
            entries.append(entry_of("eve", "another"))
        until(lambda: rig.system.api.get("/caller", headers=headers_of("eve")).status_code == 200, 30)
        yield rig


def asked(rig: Rig, path: str, who: str) -> Any:
    answer = rig.system.api.get(path, headers=headers_of(who))
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_what_jobs_spent_is_shown_beside_the_limit_and_summed_without_one(rig: Rig) -> None:
    system, tag = rig.system, fresh("spent")
    steps = [poke(name, f"{tag}-{name}", tool="poke_idempotent") for name in ("a", "b")]
    over = [*steps, poke("c", f"{tag}-c", "a", "b", tool="poke_idempotent")]
    within, beyond = system.submit(*steps), system.submit(*over)
    system.wait_ended([within, beyond])
    assert system.job(beyond)["status"] == "failed"
    found = asked(rig, "/budgets", "auditor")
    jobs = {one["job_id"]: one for one in found["jobs"]}
    for job in (within, beyond):
        (rule,) = jobs[job]["rules"]
        assert (rule["rule"], rule["calls"], rule["spent"], rule["limit"]) == ("few", 2, 2, 2)
    (together,) = found["tenant"]["rules"]
    assert (together["spent"], together["limit"], found["is_whole"]) == (4, None, True)
    assert asked(rig, "/budgets", "auditor") == found, "told again of what is kept"
    assert asked(rig, "/budgets?since=2999-01-01T00:00:00Z", "auditor")["jobs"] == []
    assert asked(rig, "/budgets", "eve")["jobs"] == [], "another tenant's"


def test_every_tenant_s_limits_are_for_who_administers(rig: Rig) -> None:
    found = {one["tenant"]: one for one in asked(rig, "/quotas", "admin")["tenants"]}
    limits = {name: {one["name"]: one for one in tenant["limits"]} for name, tenant in found.items()}
    assert limits["acme"]["tenant.open_jobs"]["limit"] == 7, "the file names it, and nobody has come from there"
    assert limits["another"]["tenant.open_jobs"]["limit"] == 5000
    assert limits["default"]["token.requests_per_s"]["left"] is None


def test_a_call_under_way_has_a_lease_that_lapses_where_its_executor_dies(rig: Rig) -> None:
    system, tag = rig.system, fresh("leased")
    held = rig.external.hold(tag)
    job = system.submit(poke("pay", tag, tool="poke_opaque", hold=held.name))

    def leases(path: str = f"/jobs/{job}/leases") -> list[dict[str, Any]]:
        return [one for one in asked(rig, path, "reader")["leases"] if one["job_id"] == job]

    until(lambda: any(one["ends_in_s"] for one in leases()), 60)
    (one,) = leases("/leases")
    assert (one["node_id"], one["tool"]) == ("pay", "poke_opaque")
    assert one["worker_id"].startswith("executor-0")
    assert 0 < one["ends_in_s"] < 120
    assert asked(rig, "/leases", "eve")["leases"] == [], "another tenant's"
    refused = system.api.get(f"/jobs/{job}/leases", headers=headers_of("eve"))
    assert refused.status_code == 404
    system.kill("executor-0")
    system.wait_status(job, "waiting", 120)
    assert leases() == [], "parked: nobody makes it any more"
    held.unlink()


def test_who_may_not_is_refused(rig: Rig) -> None:
    for path, who in (("/budgets", "reader"), ("/quotas", "auditor"), ("/leases", "admin")):
        refused = rig.system.api.get(path, headers=headers_of(who))
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "missing_role"), path
