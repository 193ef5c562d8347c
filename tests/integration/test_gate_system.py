"""On the real system: no submitter retries, no editor approves his edit, no job repeats what its session does.

Effects are counted by an outside that does not deduplicate.
"""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.testkit.attempts import fresh
from tests.testkit.outside import Outside, running_outside, until
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

PATIENCE_S = 60.0
TOLD = ("aetheris.jobs.commands.v1", "aetheris.jobs.events.v1")
TOKENS = "".join(
    f'[[token]]\nvalue = "token-of-{who}"\nname = "{who}"\ntenant = "acme"\n' for who in ("ann", "bob", "carol")
)
POLICY = """
[[rules]]
name = "ask"
tools = ["poke_*"]
irreversible = true
effect = "approval"
[[rules]]
name = "named"
tools = ["poke_lost"]
effect = "allow"
approvers = ["carol"]
[[rules]]
name = "rest"
tools = ["*"]
effect = "allow"
"""


@dataclass(frozen=True)
class World:
    system: System
    outside: Outside

    def post(self, who: str, path: str, **body: Any) -> httpx.Response:
        return self.system.api.post(path, json=body, headers={"Authorization": f"Bearer token-of-{who}"})

    def step(self, job: str) -> dict[str, Any]:
        """Once the planner has taken the job up."""
        until(lambda: self.system.job(job)["steps"], PATIENCE_S)
        (step,) = self.system.job(job)["steps"]
        return step

    def respond(self, who: str, request: str, action: str = "approve", **more: Any) -> httpx.Response:
        return self.post(who, "/ecs/respond", request_id=request, action=action, **more)

    def resolve(self, who: str, job: str, verdict: str = "retry") -> httpx.Response:
        path = f"/jobs/{job}/contracts/{self.step(job)['execution_id']}/resolve"
        return self.post(who, path, verdict=verdict, evidence="their list is empty")

    def events(self, job: str, *types: str) -> list[dict[str, Any]]:
        found = self.system.api.get(f"/jobs/{job}/events").json()
        return [event for event in found if event["type"] in types]

    def asks(self, job: str) -> str:
        """The open request, once there is one."""
        until(lambda: self.step(job).get("request_id") is not None, PATIENCE_S)
        return self.step(job)["request_id"]

    def parked(self, job: str, times: int = 1) -> None:
        until(lambda: len(self.events(job, "invocation_parked")) == times, PATIENCE_S)
        until(lambda: "is parked" in str(self.system.job(job).get("why")), PATIENCE_S)

    def refused(self, answer: httpx.Response, sentence: str) -> None:
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_an_approver"), answer.text
        assert sentence in answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    data: Path = tmp_path_factory.mktemp("gate")
    (data / "tokens.toml").write_text(TOKENS)
    (data / "policy.toml").write_text(POLICY)
    env = {"AETHERIS_TOOLS": "tests.testkit.outside_tools", "AETHERIS_POLICY": str(data / "policy.toml")}
    with (
        running_outside(tmp_path_factory.mktemp("outside")) as outside,
        running_system(data, env | outside.env) as system,
    ):
        yield World(system, outside)


def pay(tag: str) -> dict[str, Any]:
    return {"id": "a", "tool": "poke_lost", "args": {"tag": tag}, "irreversible": True}


def test_three_retries_need_three_approvals_and_none_of_them_is_the_submitters(world: World) -> None:
    tag = fresh("again")
    job = world.system.submit(pay(tag))
    assert world.respond("bob", world.asks(job)).status_code == 200
    world.parked(job)
    for tries in (1, 2, 3):
        assert world.outside.count(tag) == tries
        before = world.system.ends(*TOLD)
        for verdict in ("retry", "happened", "not_executed"):
            world.refused(world.resolve("ann", job, verdict), "who submitted the job may not resolve")
        assert world.system.ends(*TOLD) == before
        first = f"{job}:{world.step(job)['execution_id']}"
        assert world.resolve("bob", job).status_code == 200
        request = world.asks(job)
        assert request == f"{first}:{tries + 1}"
        assert world.system.wait_status(job, "waiting")["steps"][0]["state"] == "waiting"
        world.system.kill("ledger-0")  # neither the question nor the answer is lost with it
        world.refused(world.respond("ann", request), "who submitted the job may not approve")
        assert world.respond("bob", first).status_code == 200, "the same answer as before, to what was asked before"
        assert world.outside.count(tag) == tries
        assert world.respond("carol", request).status_code == 200
        world.parked(job, tries + 1)
    assert world.outside.count(tag) == 4
    assert len(world.events(job, "approval_decided")) == 4
    assert world.resolve("bob", job, "happened").status_code == 200
    world.system.wait_ended([job])
    report = world.system.report(job)
    assert report["violations"] == []
    again = [(one["by"], one["token"], one["evidence"]) for one in report["reopened_by_hand"]]
    assert again == [("bob", token, "their list is empty") for token in (2, 3, 4)]
    assert all(one["said_at"] for one in report["reopened_by_hand"])


def test_a_no_to_the_retry_ends_it_unsure(world: World) -> None:
    tag = fresh("no")
    job = world.system.submit(pay(tag))
    assert world.respond("bob", world.asks(job)).status_code == 200
    world.parked(job)
    assert world.resolve("bob", job).status_code == 200
    assert world.respond("carol", world.asks(job), "reject").status_code == 200
    world.system.wait_ended([job])
    view = world.system.job(job)
    assert (view["status"], world.step(job)["effect"]) == ("failed", "possible")
    assert world.outside.count(tag) == 1
    assert world.system.report(job)["violations"] == []


def test_an_editor_does_not_approve_his_own_edit(world: World) -> None:
    tag, changed = fresh("account"), fresh("bobs-own")
    call = {"id": "a", "tool": "poke_irreversible", "args": {"tag": tag}}
    job = world.system.submit(call)
    edited = world.respond("bob", world.asks(job), "edit", data={"tag": changed})
    assert edited.status_code == 200, edited.text
    request = edited.json()["next_request_id"]
    before = world.system.ends(*TOLD)
    world.refused(world.respond("bob", request), "who edited the call may not approve it")
    world.refused(world.respond("ann", request), "who submitted the job may not approve")
    assert world.system.ends(*TOLD) == before
    assert world.outside.count(changed) == 0
    assert world.respond("carol", request).status_code == 200
    world.system.wait_ended([job])
    assert (world.outside.count(tag), world.outside.count(changed)) == (0, 1)
    world.system.verified(job)


def test_the_rule_that_allowed_a_call_names_who_resolves_it(world: World) -> None:
    tag = fresh("named")
    job = world.system.submit({"id": "a", "tool": "poke_lost", "args": {"tag": tag}})
    world.parked(job)
    world.refused(world.resolve("bob", job, "happened"), "others are named to resolve")
    assert world.resolve("carol", job, "happened").status_code == 200
    world.system.wait_ended([job])
    (parked,) = world.events(job, "invocation_parked")
    assert (parked["data"]["rule"], parked["data"]["approvers"]) == ("named", ["carol"])
    world.system.verified(job)


def test_of_two_jobs_of_a_session_one_waits_for_the_other_and_does_not_repeat_it(world: World) -> None:
    tag, session = fresh("once"), fresh("session")
    held = world.outside.hold(tag)
    node = {"id": "a", "tool": "once_a_session", "args": {"tag": tag, "hold": held.name}}
    body = {"plan": {"nodes": [node]}, "session": session}
    first = world.post("ann", "/jobs", **body).json()["job_id"]
    world.outside.wait_for(1, tag)
    second = world.post("ann", "/jobs", **body).json()["job_id"]
    said = f"a waits for an equal call that is under way: {first}/a"
    until(lambda: world.system.job(second).get("why") == said, PATIENCE_S)
    world.system.kill("ledger-0")
    world.system.wait_ready()
    held.unlink()
    world.system.wait_ended([first, second])
    assert world.outside.count(tag) == 1
    assert world.system.job(first)["status"] == "completed"
    assert (world.step(second)["state"], world.step(second)["reason"]) == ("rejected", "duplicate_of")
    world.system.verified(second)
