"""Jobs that wait, on the whole system: signals over HTTP and by command, timers, and everything killed meanwhile."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import product
from typing import Any

import httpx
import pytest

from aetheris.protocol.planning.contract import Status
from aetheris.runtime.process.crash import ORDERED, ORDERS, VARIABLE
from tests.testkit.attempts import fresh
from tests.testkit.outside import Outside, running_outside, until
from tests.testkit.system import System, running_system

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
    env = {
        "AETHERIS_TOOLS": "tests.testkit.outside_tools",
        "AETHERIS_POLICY": str(folder / "policy.toml"),
        VARIABLE: ORDERED,
    }
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
    shipped = fresh("shipped")
    job = world.system.submit(wait("paid", "p"), poke("ship", {"$ref": "paid#/tag"}))
    view = world.system.wait_status(job, "waiting")
    assert (view["steps"][0]["state"], view["why"]) == ("waiting", "paid waits for signal")
    first = world.signal(job, "p", {"tag": shipped})
    assert (first.status_code, first.json()["event"]) == (200, "signal_received")
    again = world.signal(job, "p", {"tag": shipped})
    assert (again.status_code, again.json()) == (200, first.json())
    world.system.wait_ended([job])
    assert world.system.job(job)["status"] == "completed"
    assert world.outside.count(shipped) == 1
    assert world.signal(job, "p", {"tag": shipped}).json() == first.json()
    assert len(world.events(job, "signal_received", "wait_completed")) == 2
    world.system.verified(job)


def test_a_signal_may_come_before_its_wait(world: World) -> None:
    early = fresh("early")
    held = world.outside.hold(early)
    slow = {"id": "slow", "tool": "patient_idempotent", "args": {"tag": early, "hold": early}}
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
    until(lambda: len(world.events(job, "job_waiting")) == 2, 60)
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
    """One step's contract, and what can be asked of it over HTTP: each answers with its status."""

    world: World
    job: str
    node: str
    key: str = "k"
    """What a node of the job waits for, or has waited for."""

    def view(self) -> dict[str, Any]:
        (found,) = self.views()
        return found

    def views(self) -> list[dict[str, Any]]:
        """None before the plan is in the log."""
        answer = self.world.system.api.get(f"/jobs/{self.job}/contracts", params={"level": "request"})
        return [one for one in answer.json()["contracts"] if one["node_id"] == self.node]

    def reaches(self, status: str) -> "Contract":
        until(lambda: [one["status"] for one in self.views()] == [status], 30)
        return self

    def ended(self) -> "Contract":
        """Itself, once nothing more is written of its job."""
        self.world.system.wait_ended([self.job])
        until(lambda: self.world.events(self.job, "job_sealed") != [], 30)
        return self

    def post(self, path: str, **body: Any) -> int:
        """By whoever submitted nothing."""
        system = self.world.system
        return system.api.post(path, json=body, headers=system.approver).status_code

    def of_it(self, what: str, **body: Any) -> int:
        return self.post(f"/jobs/{self.job}/contracts/{self.view()['execution_id']}/{what}", **body)

    @property
    def request(self) -> str:
        return f"{self.job}:{self.view()['execution_id']}"

    def approve(self) -> int:
        return self.post("/ecs/respond", request_id=self.request, action="approve")

    def reject(self) -> int:
        return self.post("/ecs/respond", request_id=self.request, action="reject")

    def signal(self) -> int:
        return self.world.signal(self.job, self.key, "other").status_code

    def go_on(self) -> int:
        return self.post("/ecs/continue", request_id=self.request)

    def retry(self) -> int:
        return self.of_it("resolve", verdict="retry", evidence="asked them")

    def cancel(self) -> int:
        return self.of_it("cancel", reason="enough")


Ask = Callable[[Contract], int]
REQUEST: dict[Ask, str] = {
    Contract.approve: "respond",
    Contract.reject: "respond",
    Contract.signal: "resume",
    Contract.retry: "resume",
    Contract.go_on: "resume",
    Contract.cancel: "cancel",
}
LEGAL = {("waiting", "respond"), ("waiting", "resume"), ("waiting", "cancel"), ("running", "cancel")}
TOLD = ("aetheris.jobs.commands.v1", "aetheris.jobs.events.v1")


def irreversible(tag: str, tool: str = "poke_irreversible", hold: str = "") -> dict[str, Any]:
    return {"id": "a", "tool": tool, "args": {"tag": tag, "hold": hold}, "depends_on": ["w"]}


def asking(world: World, tag: str, **more: str) -> Contract:
    """A call that waits for its approval, in a job whose signal was used."""
    job = world.system.submit(wait("w", "k"), irreversible(tag, **more))
    assert world.signal(job, "k", 1).status_code == 200
    until(lambda: len(world.events(job, "approval_requested", "job_waiting")) == 3, 30)
    return Contract(world, job, "a").reaches("waiting")


def parked(world: World, tag: str = "lost") -> Contract:
    job = world.system.submit({"id": "a", "tool": "poke_lost", "args": {"tag": tag}}, wait("w", "k", "a"))
    world.system.wait_status(job, "waiting")
    return Contract(world, job, "a").reaches("waiting")


def running(world: World, tag: str, hold: str, tool: str = "patient_probeable") -> Contract:
    job = world.system.submit(wait("w", "k"), irreversible(tag, tool, hold))
    assert world.signal(job, "k", 1).status_code == 200
    contract = Contract(world, job, "a")
    if tool == "patient_irreversible":
        until(lambda: world.events(job, "approval_requested") != [], 30)
        assert contract.approve() == 200
    world.outside.wait_for(1, tag)
    return contract.reaches("running")


def refused(world: World, hold: str) -> dict[Contract, tuple[str, list[Ask]]]:
    """Contracts at rest, in each state at least one, and what can't be asked of them. Left out: repeats, and

    signals that come before their wait: they are kept.
    """

    def but(*asks: Ask) -> list[Ask]:
        return [ask for ask in REQUEST if ask not in asks]

    first = world.system.submit(wait("w", "k"), irreversible("first"), wait("later", "l", "w"))
    world.system.wait_status(first, "waiting")
    found: dict[Contract, tuple[str, list[Ask]]] = {
        Contract(world, first, "a"): ("pending", but(Contract.signal)),
        Contract(world, first, "later"): ("pending", but(Contract.signal)),
        Contract(world, first, "w"): ("waiting", but(Contract.signal, Contract.cancel)),
        asking(world, "asked"): ("waiting", but(Contract.approve, Contract.reject, Contract.cancel)),
        parked(world): ("waiting", but(Contract.retry, Contract.signal, Contract.cancel)),
        running(world, fresh("unasked"), hold): ("running", but(Contract.cancel)),
    }
    once = running(world, fresh("approved"), hold, "patient_irreversible")
    found[once] = ("running", but(Contract.approve, Contract.go_on, Contract.cancel))

    completed = asking(world, "completed")
    assert completed.approve() == 200
    found[completed.ended()] = ("completed", but(Contract.approve, Contract.go_on))
    found[Contract(world, completed.job, "w")] = ("completed", but())
    failed = world.system.submit({"id": "a", "tool": "poke_refused"}, wait("w", "k", "a"))
    found[Contract(world, failed, "a").ended()] = ("failed", but())
    given_up = parked(world)
    assert given_up.of_it("resolve", verdict="not_executed", evidence="asked them") == 200
    found[given_up.ended()] = ("failed", but())
    rejected = asking(world, "rejected")
    assert rejected.reject() == 200
    found[rejected.ended()] = ("rejected", but(Contract.reject, Contract.go_on))
    cancelled = asking(world, "cancelled")
    assert cancelled.cancel() == 200
    found[cancelled.ended()] = ("cancelled", but())
    found[Contract(world, world.system.submit(wait("w", "k", timeout_s=0.2)), "w").ended()] = ("cancelled", but())
    return found


def test_what_a_state_does_not_allow_is_409_and_changes_nothing(world: World) -> None:
    """Respond, resume and cancel against contracts in each of the seven states: no command and no event is written."""
    held = world.outside.hold(fresh("matrix"))
    contracts = refused(world, held.name)
    asked = {(state, REQUEST[ask]) for state, asks in contracts.values() for ask in asks}
    every = set(product(Status, ("respond", "resume", "cancel")))
    assert asked >= every - LEGAL
    before = world.system.ends(*TOLD), {contract: contract.view() for contract in contracts}
    assert {contract: view["status"] for contract, view in before[1].items()} == {
        contract: state for contract, (state, _) in contracts.items()
    }
    answers = {(state, at, REQUEST[ask]): ask(at) for at, (state, asks) in contracts.items() for ask in asks}
    assert {cell: status for cell, status in answers.items() if status != 409} == {}
    assert (world.system.ends(*TOLD), {contract: contract.view() for contract in contracts}) == before
    held.unlink()


def test_what_a_state_allows_moves_the_contract(world: World) -> None:
    approved, rejected = asking(world, "yes"), asking(world, "no")
    assert (approved.approve(), rejected.reject()) == (200, 200)
    approved.reaches("completed")
    rejected.reaches("rejected")

    early = world.system.submit(wait("w", "k"), wait("later", "l", "w"))
    waiting, later = Contract(world, early, "w").reaches("waiting"), Contract(world, early, "later", "l")
    assert later.signal() == 200
    assert (later.view()["status"], later.view()["transitions"]) == ("pending", [])
    assert waiting.signal() == 200
    later.reaches("completed")

    tag = fresh("lost")
    lost = parked(world, tag)
    assert lost.retry() == 200
    world.outside.wait_for(2, tag)

    cancelled, called_off = asking(world, "cancelled"), parked(world)
    assert (cancelled.cancel(), called_off.cancel()) == (200, 200)
    view = cancelled.ended().reaches("cancelled").view()
    assert ([moved["trigger"] for moved in view["transitions"]], view["has_effect"]) == (
        ["start", "suspend", "cancel"],
        "none",
    )
    view = called_off.reaches("cancelled").view()
    assert (view["has_effect"], view["outcome"]) == ("possible", "cancelled")


def test_a_step_that_runs_is_settled_before_it_is_cancelled(world: World) -> None:
    name = fresh("settled")
    held = world.outside.hold(name)
    contract = running(world, name, name, "patient_irreversible")
    assert (contract.cancel(), contract.cancel()) == (200, 200)
    assert contract.view()["has_effect"] == "possible"
    held.unlink()
    assert contract.reaches("completed").view()["has_effect"] == "confirmed"
    assert len(world.events(contract.job, "invocation_cancel_requested")) == 1


def test_the_command_cancels_one_step(world: World) -> None:
    job = world.system.submit(wait("w", "k"))
    Contract(world, job, "w").reaches("waiting")
    command = [sys.executable, "-m", "aetheris.cli", "cancel", job, "--node", "w", "--reason", "enough", "--json"]
    said = subprocess.run(
        [*command, "--data", str(world.system.data)], capture_output=True, text=True, check=True, env=os.environ
    )
    assert json.loads(said.stdout)["event"] == "invocation_rejected"
    world.system.wait_ended([job])
    (step,) = world.system.job(job)["steps"]
    assert (step["state"], step["reason"]) == ("cancelled", "cancelled")


def test_a_planner_dies_between_the_end_of_a_wait_and_its_consumption(world: World) -> None:
    system, consumed = world.system, fresh("consumed")
    job = system.submit(wait("paid", "p"), poke("ship", {"$ref": "paid#"}))
    system.wait_status(job, "waiting")
    orders = system.data / ORDERS
    orders.with_suffix(".new").write_text("after_wait")
    orders.with_suffix(".new").replace(orders)
    assert world.signal(job, "p", consumed).status_code == 200
    until(lambda: not orders.exists(), 30)
    system.wait_ended([job])
    assert (system.job(job)["status"], world.outside.count(consumed)) == ("completed", 1)
    reports = [event["data"]["node_id"] for event in world.events(job, "node_finished")]
    assert reports == ["paid", "ship"]


def test_everything_is_killed_while_jobs_wait(world: World) -> None:
    """Each signal is consumed once, whichever process reads it; the timer ends at the time that its event names."""
    system, own = world.system, fresh("all")
    jobs = [system.submit(wait("paid", "p"), poke("ship", {"$ref": "paid#"})) for _ in range(20)]
    early = [
        system.submit(poke("a", f"{own}-a{n}"), wait("paid", "p", "a"), poke("ship", {"$ref": "paid#"}))
        for n in range(5)
    ]
    timer = system.submit({"id": "t", "kind": "timer", "wait": {"for_s": 8}}, poke("ship", f"{own}-timer", "t"))
    for number, job in enumerate(early):
        assert world.signal(job, "p", f"{own}-early-{number}").status_code == 200
    for job in jobs:
        system.wait_status(job, "waiting")
    until(lambda: world.events(timer, "job_waiting") != [], 30)
    (due,) = world.events(timer, "job_waiting")
    for name in SERVICES:
        system.kill(name)
    system.flush_redis()
    system.wait_ready()
    until(lambda: all(system.job(job).get("status") for job in jobs), 30)
    for _ in range(2):
        for number, job in enumerate(jobs):
            assert world.signal(job, "p", f"{own}-{number}").status_code == 200
    system.wait_ended([*jobs, *early, timer], 60)
    tags = [f"{own}-{number}" for number in range(20)] + [f"{own}-early-{number}" for number in range(5)]
    tags.append(f"{own}-timer")
    assert {tag: world.outside.count(tag) for tag in tags} == dict.fromkeys(tags, 1)
    for job in [*jobs, *early]:
        assert len(world.events(job, "signal_received")) == 1
        assert len(world.events(job, "wait_completed")) == 1
    (ended,) = world.events(timer, "wait_completed")
    assert ended["time"] >= due["data"]["due_at"].replace("+00:00", "Z")
    for job in [jobs[0], early[0], timer]:
        system.verified(job)
