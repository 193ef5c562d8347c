"""A canary secret, given to tools that do their worst with it: it is nowhere but in their hands (docs/secrets.md)."""

import hashlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.testkit.canary import MARK, Canary, found_in, kept_and_told
from tests.testkit.collector import Collector, running_collector
from tests.testkit.external_server import until
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


@dataclass(frozen=True)
class SecretsRig:
    """A system that knows a secret, `canary`."""

    system: System
    canary: Canary
    collector: Collector

    def errors(self, job: str) -> list[str]:
        return [one["error"] for one in self.system.data_of(job, "tool_invocation_finished") if "error" in one]

    def given(self) -> set[str]:
        return self.canary.given()


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[SecretsRig]:
    folder = tmp_path_factory.mktemp("secrets")
    canary = Canary.laid(folder, {"gone@1": ("file", "not-there"), "short@1": ("env", "S")})
    with running_collector() as collector:
        env = {"AETHERIS_TOOLS": "tests.testkit.secret_tools", "S": "short", **canary.env, **collector.env}
        with running_system(folder / "data", env) as system:
            yield SecretsRig(system, canary, collector)


def secret(name: str) -> dict[str, str]:
    return {"$secret": name}


def test_a_canary_is_nowhere_but_in_the_tools_hands(rig: SecretsRig) -> None:
    token = secret("canary@1")
    leaks = rig.system.submit(
        {"id": "a", "tool": "leak", "args": {"token": token}},
        {"id": "b", "tool": "leak", "args": {"token": token, "large": 4000}, "depends_on": ["a"]},
    )
    once = {"max_attempts": 1}
    hows = ("failed", "not_executed", "lost")
    args = {how: {"token": token, "how": how} for how in hows}
    raising = [rig.system.submit({"id": "r", "tool": "raises", "args": args[how], "retry": once}) for how in hows]
    rig.system.wait_ended([leaks, *raising])
    assert rig.system.job(leaks)["status"] == "completed"
    assert hashlib.sha256(rig.canary.value.encode()).hexdigest() in rig.given()
    started = rig.system.events(leaks, "tool_invocation_started")[0]["data"]
    reference = b'{"large":0,"token":{"$secret":"canary@1"}}'
    assert started["args_hash"] == hashlib.sha256(reference).hexdigest()
    assert any("[secret canary@1]" in error for job in raising for error in rig.errors(job))
    ended = {one["data"]["node_id"]: one["data"] for one in rig.system.events(leaks, "tool_invocation_finished")}
    large = ended["b"]["result_ref"]
    blob = (rig.system.data / "blobs" / large["sha256"][:2] / large["sha256"]).read_bytes()
    assert MARK in blob
    until(lambda: all(rig.system.events(job, "job_sealed") for job in (leaks, *raising)), 30)
    until(lambda: any(b"execute_tool leak" in body for body in rig.collector.bodies()), 30)
    places = kept_and_told(rig.system, rig.collector, rig.canary.folder, leaks, *raising)
    leaked, controls = found_in(rig.canary, places)
    assert leaked == set()
    assert {"kafka", "valkey", "blobs", "logs", "page", "bundle", "job"} <= controls, controls


@pytest.mark.parametrize(
    ("tool", "args", "text"),
    [
        ("leak", {"token": secret("nobody@1")}, "unknown secret nobody@1"),
        ("leak", {"token": secret("canary@2")}, "unknown secret canary@2"),
        ("leak", {"token": secret("gone@1")}, "NotExecuted: secret gone@1 can't be read"),
        (
            "leak",
            {"token": secret("short@1")},
            "secret short@1 is too short to be kept out of results: 8 characters at least",
        ),
        ("takes", {"what": secret("canary@1")}, "secret canary@1 is not for takes#/what"),
        ("takes", {"what": {"inner": {"x": secret("canary@1")}}}, "secret canary@1 is not for takes#/what/inner/x"),
    ],
)
def test_what_a_tool_is_not_given(rig: SecretsRig, tool: str, args: dict[str, Any], text: str) -> None:
    before = rig.given()
    job = rig.system.submit({"id": "a", "tool": tool, "args": args, "retry": {"max_attempts": 1}})
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "failed"
    assert set(rig.errors(job)) == {text}
    assert rig.given() == before


def test_only_a_plan_names_a_secret(rig: SecretsRig) -> None:
    before = rig.given()
    job = rig.system.submit(
        {"id": "a", "tool": "crafts", "args": {"name": "canary@1"}},
        {"id": "b", "tool": "takes", "args": {"what": {"$ref": "a#"}}},
    )
    rig.system.wait_ended([job])
    (failed,) = [step for step in rig.system.job(job)["steps"] if step["node_id"] == "b"]
    assert "which only a plan may" in failed["reason"]
    assert rig.given() == before


@pytest.mark.parametrize("wrong", ["canary", "canary@1@2", "", 1, None])
def test_a_secret_that_is_written_in_another_way_is_refused_at_once(rig: SecretsRig, wrong: Any) -> None:
    node = {"id": "a", "tool": "takes", "args": {"what": [{"$secret": wrong}]}}
    answer = rig.system.api.post("/jobs", json={"plan": {"nodes": [node]}})
    assert (answer.status_code, answer.json()["error"]["details"]["field"]) == (400, "plan.nodes[0].args/what/0")
