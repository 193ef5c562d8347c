"""Jobs that wait, on the whole system: signals over HTTP and by command, timers, and everything killed meanwhile."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from aetheris.streams.crash import ORDERED, ORDERS, VARIABLE
from tests.outside import Outside, running_outside, until
from tests.system import System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

POLICY = """
[[rules]]
name = "ask"
tools = ["*"]
irreversible = true
effect = "approval"
self_approval = true

[[rules]]
name = "rest"
tools = ["*"]
effect = "allow"
"""
SERVICES = ("planner-0", "ledger-0", "executor-0", "verifier-0", "gateway-0")


@dataclass(frozen=True)
class World:
    system: System
    outside: Outside

    def events(self, job: str, *types: str) -> list[dict[str, Any]]:
        found = self.system.api.get(f"/jobs/{job}/events").json()
        return [event for event in found if not types or event["type"] in types]

    def signal(self, job: str, key: str, payload: Any = None) -> httpx.Response:
        return self.system.api.post(f"/jobs/{job}/signal", json={"correlation_key": key, "payload": payload})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("waits")
    (folder / "policy.toml").write_text(POLICY)
    env = {"AETHERIS_TOOLS": "tests.outside_tools", "AETHERIS_POLICY": str(folder / "policy.toml"), VARIABLE: ORDERED}
    with (
        running_outside(folder / "outside") as outside,
        running_system(folder / "data", env | outside.env) as system,
    ):
        yield World(system, outside)


def wait(node: str, key: str, *after: str, **more: Any) -> dict[str, Any]:
    return {"id": node, "kind": "wait", "wait": {"key": key} | more, "depends_on": list(after)}


def poke(node: str, tag: Any, *after: str) -> dict[str, Any]:
    return {"id": node, "tool": "poke_probeable", "args": {"tag": tag}, "depends_on": list(after)}


def test_a_signal_lets_a_waiting_job_go_on(world: World) -> None:
    job = world.system.submit(wait("paid", "p"), poke("ship", {"$ref": "paid#/tag"}))
    view = world.system.wait_status(job, "waiting")
    assert (view["steps"][0]["state"], view["why"]) == ("waiting", "paid waits for signal")
    first = world.signal(job, "p", {"tag": "shipped"})
    assert (first.status_code, first.json()["event"]) == (200, "signal_received")
    again = world.signal(job, "p", {"tag": "shipped"})
    assert (again.status_code, again.json()) == (200, first.json())
    world.system.wait_ended([job])
    assert world.system.job(job)["status"] == "completed"
    assert world.outside.count("shipped") == 1
    assert world.signal(job, "p", {"tag": "shipped"}).json() == first.json()
    assert len(world.events(job, "signal_received", "wait_completed")) == 2
    assert world.system.api.get(f"/jobs/{job}/verify").json()["ok"]


def test_a_signal_may_come_before_its_wait(world: World) -> None:
    held = world.outside.hold("early")
    slow = {"id": "slow", "tool": "patient_idempotent", "args": {"tag": "early", "hold": "early"}}
    job = world.system.submit(slow, wait("paid", "p", "slow"))
    assert world.signal(job, "p", 5).status_code == 200
    assert world.events(job, "wait_completed") == []
    held.unlink()
    world.system.wait_ended([job])
    assert world.system.job(job)["result"] == {"paid": 5}


def test_what_no_signal_can_do_is_refused_and_leaves_the_log_as_it_is(world: World) -> None:
    job = world.system.submit(wait("paid", "p"), wait("sent", "s", "paid"))
    world.system.wait_status(job, "waiting")
    assert world.signal(job, "p", 1).status_code == 200
    until(lambda: len(world.events(job, "job_waiting")) == 2, 20)
    before = world.events(job)
    used, undeclared = world.signal(job, "p", 2), world.signal(job, "x", 1)
    assert (used.status_code, used.json()["error"]["code"]) == (409, "signal_conflict")
    assert (undeclared.status_code, undeclared.json()["error"]["details"]["field"]) == (400, "correlation_key")
    assert world.signal(job, "s", "x" * 70_000).status_code == 400
    assert world.signal("no-such-job", "p").status_code == 404
    assert world.events(job) == before
    assert world.system.api.post(f"/jobs/{job}/cancel", json={}).status_code == 200
    world.system.wait_ended([job])
    assert world.signal(job, "s", 1).status_code == 409
    assert [event["data"]["reason"] for event in world.events(job, "invocation_rejected")] == ["cancelled"]


def test_a_timeout_fails_its_node(world: World) -> None:
    job = world.system.submit(wait("paid", "p", timeout_s=0.3), poke("ship", "never", "paid"))
    world.system.wait_ended([job])
    view = world.system.job(job)
    assert (view["status"], view["steps"][0]["state"], view["steps"][0]["reason"]) == ("failed", "cancelled", "expired")
    assert world.outside.count("never") == 0
    assert world.signal(job, "p", 1).status_code == 409


def test_the_command_signals(world: World) -> None:
    job = world.system.submit(wait("paid", "p"))
    command = [sys.executable, "-m", "aetheris.cli", "signal", job, "p", "--payload", '{"ok": true}']
    said = subprocess.run(
        [*command, "--data", str(world.system.data), "--json"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"AETHERIS_DATA": str(world.system.data)},
    )
    assert json.loads(said.stdout)["event"] == "signal_received"
    world.system.wait_ended([job])
    assert world.system.job(job)["result"] == {"paid": {"ok": True}}


@dataclass(frozen=True)
class Contract:
    """One step's contract, and what can be asked of it over HTTP."""

    world: World
    job: str
    node: str

    def view(self) -> dict[str, Any]:
        (found,) = self.views()
        return found

    def views(self) -> list[dict[str, Any]]:
        """None before the plan is in the log."""
        answer = self.world.system.api.get(f"/jobs/{self.job}/contracts", params={"level": "transition"})
        return [one for one in answer.json()["contracts"] if one["node_id"] == self.node]

    def reaches(self, status: str) -> "Contract":
        until(lambda: [one["status"] for one in self.views()] == [status], 30)
        return self

    def cancel(self) -> int:
        path = f"/jobs/{self.job}/contracts/{self.view()['execution_id']}/cancel"
        return self.world.system.api.post(path, json={"reason": "enough"}).status_code

    def respond(self, action: str) -> int:
        body = {"request_id": f"{self.job}:{self.view()['execution_id']}", "action": action}
        return self.world.system.api.post("/ecs/respond", json=body).status_code

    def refuses(self, *asked: Callable[[], int]) -> None:
        """Each is refused, and neither the log nor the contract changes."""
        before = self.world.events(self.job), self.view()
        assert {ask() for ask in asked} == {409}
        assert (self.world.events(self.job), self.view()) == before


def asking(world: World, tag: str, hold: str = "", **more: Any) -> Contract:
    node = {"id": "a", "tool": "poke_irreversible", "args": {"tag": tag, "hold": hold}} | more
    job = world.system.submit(node, wait("w", "k"))
    until(lambda: len(world.events(job, "job_waiting")) == 2, 30)
    return Contract(world, job, "a")


def test_what_may_be_asked_of_a_contract_in_each_state(world: World) -> None:
    behind = {"id": "a", "tool": "poke_pure", "args": {"tag": "t"}, "depends_on": ["w"]}
    first = world.system.submit(wait("w", "k"), behind)
    Contract(world, first, "w").reaches("waiting")
    pending = Contract(world, first, "a").reaches("pending")
    pending.refuses(pending.cancel)

    held = world.outside.hold("running")
    running = asking(world, "running", "running").reaches("waiting")
    assert running.respond("approve") == 200
    running.reaches("running")
    running.refuses(lambda: running.respond("reject"))
    assert (running.cancel(), running.cancel()) == (200, 200)
    assert running.view()["has_effect"] == "possible"
    held.unlink()
    completed = running.reaches("completed")
    until(lambda: world.events(running.job, "node_finished") != [], 20)
    assert completed.view()["has_effect"] == "confirmed"
    completed.refuses(completed.cancel, lambda: completed.respond("reject"))

    cancelled = asking(world, "cancelled").reaches("waiting")
    assert cancelled.cancel() == 200
    cancelled.reaches("cancelled")
    world.system.wait_ended([cancelled.job])
    until(lambda: world.events(cancelled.job, "job_sealed") != [], 20)
    assert [moved["trigger"] for moved in cancelled.view()["transitions"]] == ["start", "suspend", "cancel"]
    cancelled.refuses(cancelled.cancel, lambda: cancelled.respond("approve"))
    cancelled.refuses(lambda: world.signal(cancelled.job, "k").status_code)

    rejected = asking(world, "rejected").reaches("waiting")
    assert rejected.respond("reject") == 200
    rejected.reaches("rejected")
    world.system.wait_ended([rejected.job])
    until(lambda: world.events(rejected.job, "job_sealed") != [], 20)
    rejected.refuses(rejected.cancel, lambda: rejected.respond("approve"))

    parked = Contract(world, world.system.submit({"id": "a", "tool": "poke_lost", "args": {"tag": "lost"}}), "a")
    failed = Contract(world, world.system.submit({"id": "a", "tool": "poke_lost", "args": {"tag": "lost"}}), "a")
    parked.reaches("waiting")
    assert parked.cancel() == 200
    assert (parked.reaches("cancelled").view()["has_effect"], parked.view()["outcome"]) == ("possible", "cancelled")
    failed.reaches("waiting")
    path = f"/jobs/{failed.job}/contracts/{failed.view()['execution_id']}/resolve"
    resolved = world.system.api.post(path, json={"verdict": "not_executed", "evidence": "asked them"})
    assert resolved.status_code == 200
    failed.reaches("failed")
    world.system.wait_ended([failed.job])
    until(lambda: world.events(failed.job, "job_sealed") != [], 20)
    failed.refuses(failed.cancel)

    waiting = Contract(world, first, "w").reaches("waiting")
    assert world.signal(first, "k").status_code == 200
    waiting.reaches("completed")
    world.system.wait_ended([first])
    until(lambda: world.events(first, "job_sealed") != [], 20)
    waiting.refuses(waiting.cancel, lambda: world.signal(first, "k", "other").status_code)


def test_a_planner_dies_between_the_end_of_a_wait_and_its_consumption(world: World) -> None:
    system = world.system
    job = system.submit(wait("paid", "p"), poke("ship", {"$ref": "paid#"}))
    system.wait_status(job, "waiting")
    orders = system.data / ORDERS
    orders.with_suffix(".new").write_text("after_wait")
    orders.with_suffix(".new").replace(orders)
    assert world.signal(job, "p", "consumed").status_code == 200
    until(lambda: not orders.exists(), 30)
    system.wait_ended([job])
    assert (system.job(job)["status"], world.outside.count("consumed")) == ("completed", 1)
    reports = [event["data"]["node_id"] for event in world.events(job, "node_finished")]
    assert reports == ["paid", "ship"]


def test_everything_is_killed_while_jobs_wait(world: World) -> None:
    """Each signal is consumed once, whichever process reads it; the timer ends at the time that its event names."""
    system = world.system
    jobs = [system.submit(wait("paid", "p"), poke("ship", {"$ref": "paid#"})) for _ in range(20)]
    early = [
        system.submit(poke("a", f"a{n}"), wait("paid", "p", "a"), poke("ship", {"$ref": "paid#"})) for n in range(5)
    ]
    timer = system.submit({"id": "t", "kind": "timer", "wait": {"for_s": 8}}, poke("ship", "timer", "t"))
    for number, job in enumerate(early):
        assert world.signal(job, "p", f"early-{number}").status_code == 200
    for job in [*jobs, timer]:
        system.wait_status(job, "waiting")
    (due,) = world.events(timer, "job_waiting")
    for name in SERVICES:
        system.kill(name)
    system.flush_redis()
    system.wait_ready()
    until(lambda: all(system.job(job).get("status") for job in jobs), 30)
    for _ in range(2):
        for number, job in enumerate(jobs):
            assert world.signal(job, "p", f"tag-{number}").status_code == 200
    system.wait_ended([*jobs, *early, timer], 60)
    tags = [f"tag-{number}" for number in range(20)] + [f"early-{number}" for number in range(5)] + ["timer"]
    assert {tag: world.outside.count(tag) for tag in tags} == dict.fromkeys(tags, 1)
    for job in [*jobs, *early]:
        assert len(world.events(job, "signal_received")) == 1
        assert len(world.events(job, "wait_completed")) == 1
    (ended,) = world.events(timer, "wait_completed")
    assert ended["time"] >= due["data"]["due_at"].replace("+00:00", "Z")
    for job in [jobs[0], early[0], timer]:
        assert system.api.get(f"/jobs/{job}/verify").json()["ok"]
