"""A paused job on the whole system: whoever dies meanwhile, nothing of it starts; resumed, it comes to its end."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.testkit.attempts import fresh
from tests.testkit.outside import Outside, running_outside, until
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]


@dataclass(frozen=True)
class World:
    system: System
    outside: Outside

    def types(self, job: str, *types: str) -> list[str]:
        found = self.system.api.get(f"/jobs/{job}/events").json()
        return [event["type"] for event in found if not types or event["type"] in types]

    def say(self, what: str, job: str, reason: str | None = None) -> httpx.Response:
        return self.system.api.post(f"/jobs/{job}/{what}", json={"reason": reason} if reason else {})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("pauses")
    with running_outside(folder / "outside") as outside:
        env = {"AETHERIS_TOOLS": "tests.testkit.outside_tools"}
        with running_system(folder / "data", env | outside.env) as system:
            yield World(system, outside)


def poke(node: str, tag: str, *after: str, **args: Any) -> dict[str, Any]:
    return {"id": node, "tool": "poke_probeable", "args": {"tag": tag, **args}, "depends_on": list(after)}


def completed(world: World, *nodes: dict[str, Any]) -> str:
    job = world.system.submit(*nodes)
    world.system.wait_status(job, "completed")
    return job


def test_a_job_paused_in_the_middle_starts_nothing_though_all_that_run_it_are_killed(world: World) -> None:
    tag = fresh("paused")
    held = world.outside.hold(tag)
    job = world.system.submit(poke("a", tag, hold=tag), poke("b", f"{tag}-b", "a"), poke("c", f"{tag}-c", "b"))
    world.outside.wait_for(1, tag)
    with ThreadPoolExecutor() as people:
        answers = list(people.map(lambda why: world.say("pause", job, why), ("look", "wait", "stop")))
    assert [(answer.status_code, answer.json()["event"]) for answer in answers] == [(200, "job_paused")] * 3
    assert world.types(job, "job_paused") == ["job_paused"]
    held.unlink()
    until(lambda: world.types(job, "node_finished") == ["node_finished"], 30)
    view = world.system.job(job)
    who, why = view["paused"]["by"], view["paused"]["reason"]
    assert (view["status"], view["why"]) == ("paused", f"paused by {who}: {why}")
    for service in ("executor-0", "ledger-0", "planner-0"):
        world.system.kill(service)
    world.system.wait_ready()
    listed = world.system.api.get("/jobs", params={"status": "paused"}).json()["jobs"]
    assert [row["job_id"] for row in listed] == [job]
    for _ in range(4):  # they run, and other jobs go on
        completed(world, poke("a", fresh("other")))
    assert (world.outside.count(f"{tag}-b"), world.system.job(job)["status"]) == (0, "paused")
    assert world.say("resume", job).json()["event"] == "job_resumed"
    world.system.wait_status(job, "completed")
    assert [world.outside.count(f"{tag}{node}") for node in ("", "-b", "-c")] == [1, 1, 1]
    world.system.verified(job)
    assert world.say("pause", job).status_code == 409


def test_what_cant_be_paused_or_resumed_is_refused_and_leaves_the_log_as_it_is(world: World) -> None:
    wait = {"id": "w", "kind": "wait", "wait": {"key": "go"}}
    job = world.system.submit(wait, poke("a", fresh("after"), "w"))
    world.system.wait_status(job, "waiting")
    before = world.types(job)
    refused = world.say("resume", job)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "illegal_transition")
    assert world.say("pause", "no-such-job").status_code == 404
    assert world.system.api.post(f"/jobs/{job}/pause", json={"reason": "x" * 3_000}).status_code == 400
    assert world.types(job) == before
    assert world.say("pause", job).status_code == 200
    again = world.say("pause", job, "once more")
    assert (again.status_code, again.json()["paused"]["reason"]) == (200, None)
    signalled = world.system.api.post(f"/jobs/{job}/signal", json={"correlation_key": "go", "payload": 1})
    assert signalled.json()["event"] == "signal_received"
    assert world.system.api.post(f"/jobs/{job}/cancel", json={}).status_code == 200
    world.system.wait_status(job, "cancelled")
    assert (world.say("pause", job).status_code, world.say("resume", job).status_code) == (409, 409)
    assert "tool_invocation_started" not in world.types(job)
    world.system.verified(job)
