"""Who administers steers another tenant's jobs, and nobody else does; what it came to is counted outside."""

import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from aetheris.cli import token_files
from aetheris.protocol.base.principals import PrincipalKind, Role
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke, running_rig, wait
from tests.testkit.tokens import entry_of, headers_of, token_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

PATIENCE_S = 60.0
AGENT = (Role.SUBMIT, Role.READ, Role.READ_PAYLOADS)
PEOPLE = (
    entry_of("bot", "acme", roles=AGENT, kind=PrincipalKind.AGENT),
    entry_of("other-bot", "acme", roles=AGENT, kind=PrincipalKind.AGENT),
    entry_of("auditor", "acme", roles=[Role.AUDIT]),
    entry_of("mallory", "globex", roles=[role for role in Role if role is not Role.ADMINISTER]),
    entry_of("root", "platform", roles=[Role.ADMINISTER]),
)


@dataclass(frozen=True)
class TenantsRig(Rig):
    """Two tenants, and somebody who administers both."""

    def submit(self, who: str, *nodes: dict[str, Any]) -> str:
        answer = self.system.api.post("/jobs", json={"plan": {"nodes": list(nodes)}}, headers=headers_of(who))
        assert answer.status_code == 202, answer.text
        return answer.json()["job_id"]

    def status(self, job: str) -> str:
        return self.system.api.get(f"/jobs/{job}", headers=headers_of("bot")).json()["status"]

    def cancel(self, who: str, job: str, **body: Any) -> httpx.Response:
        return self.system.api.post(f"/jobs/{job}/cancel", json=body, headers=headers_of(who), timeout=60)

    def events(self, job: str, kind: str) -> list[dict[str, Any]]:
        found = self.system.api.get(f"/jobs/{job}/events", headers=headers_of("bot")).json()
        return [one["data"] for one in found if one["type"] == kind]

    def accesses(self, who: str) -> list[dict[str, Any]]:
        page = self.system.api.get("/audit", params={"limit": 1000}, headers=headers_of(who)).json()
        return page["records"]

    def cli(self, *argv: str, who: str = "root", ends: int = 0) -> str:
        called = [sys.executable, "-m", "aetheris.cli", *argv, "--data", str(self.system.data), "--as", who]
        done = subprocess.run(called, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == ends, done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[TenantsRig]:
    with running_rig(tmp_path_factory.mktemp("tenants")) as rig:
        with token_files.changed(rig.system.data / "tokens.toml") as entries:
            entries.extend(PEOPLE)
        for one in PEOPLE:
            token_files.save(rig.system.data, one.name, token_of(one.name))
        yield TenantsRig(rig.system, rig.external)


def held(rig: TenantsRig, who: str, tag: str) -> str:
    """A job that has had one effect, and would have another."""
    job = rig.submit(who, poke("a", tag), wait("w", "go", "a"), poke("b", f"{tag}-b", "w"))
    until(lambda: rig.status(job) == "waiting", PATIENCE_S)
    return job


def test_who_administers_cancels_a_job_of_a_tenant_that_he_names_and_to_nobody_else_is_it_there(
    rig: TenantsRig,
) -> None:
    tag = fresh("across")
    job = held(rig, "bot", tag)
    unknown = rig.cancel("mallory", "0" * 32)
    for answer in (
        rig.cancel("mallory", job),
        rig.cancel("mallory", job, tenant="acme"),
        rig.cancel("mallory", "0" * 32, tenant="acme"),
        rig.cancel("mallory", "0" * 32, tenant="nobodys"),
        rig.cancel("root", job),
        rig.cancel("root", job, tenant="globex"),
    ):
        assert (answer.status_code, answer.json()) == (unknown.status_code, unknown.json()) == (404, answer.json())
    assert rig.status(job) == "waiting"
    listed = rig.system.api.get("/jobs", params={"tenant": "acme"}, headers=headers_of("mallory"))
    assert (listed.status_code, listed.json()["error"]["code"]) == (403, "missing_role")
    assert "cancel_requested" in rig.cli("cancel", job[:20], "--tenant", "acme", "--reason", "it runs wild")
    until(lambda: rig.status(job) == "cancelled", PATIENCE_S)
    again = rig.cancel("root", job, tenant="acme")
    assert (again.status_code, again.json()["status"], again.json()["tenant"]) == (200, "cancelled", "acme")
    (asked,) = rig.events(job, "cancel_requested")
    assert (asked["by"], asked["principal"]["tenant"], asked["reason"]) == ("root", "platform", "it runs wild")
    assert (rig.external.count(tag), rig.external.count(f"{tag}-b")) == (1, 0)

    def told(who: str) -> list[dict[str, Any]]:
        return [one for one in rig.accesses(who) if one.get("action") == "across" and one.get("subject") == job]

    until(lambda: len(told("auditor")) == 2, PATIENCE_S)
    for one in told("auditor"):
        assert (one["principal"]["id"], one["tenant"], one["other_tenant"]) == ("root", "platform", "acme")
    assert told("mallory") == []


def test_many_are_listed_first_and_cancelled_once_each_though_the_gateway_dies_in_between(rig: TenantsRig) -> None:
    tag = fresh("many")
    wild = [held(rig, "bot", f"{tag}-{number}") for number in range(4)]
    quiet = held(rig, "other-bot", f"{tag}-quiet")
    of_bot = ("cancel", "--agent", "bot", "--tenant", "acme", "--since", "1h")
    listed = rig.cli(*of_bot)
    assert all(job in listed for job in wild)
    assert quiet not in listed
    assert "--yes" in listed
    assert {rig.status(job) for job in (*wild, quiet)} == {"waiting"}
    assert rig.cancel("root", wild[0], tenant="acme").status_code in (200, 202)
    rig.system.kill("gateway-0")
    rig.system.wait_ready()
    rig.cli(*of_bot, "--yes")
    assert not any(job in rig.cli(*of_bot, "--yes") for job in wild[:1])
    for job in wild:
        until(lambda job=job: rig.status(job) == "cancelled", PATIENCE_S)
        assert len(rig.events(job, "cancel_requested")) == 1
    assert rig.status(quiet) == "waiting"
    rig.cli("cancel", "--tenant", "acme", "--yes")
    until(lambda: rig.status(quiet) == "cancelled", PATIENCE_S)
    tags = [f"{tag}-{number}" for number in (*range(4), "quiet")]
    assert [(rig.external.count(one), rig.external.count(f"{one}-b")) for one in tags] == [(1, 0)] * 5
    rig.cli("cancel", "--tenant", "acme", who="mallory", ends=1)
