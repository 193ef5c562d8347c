"""Jobs that wait, on the whole system: signals over HTTP and by command, timers, and everything killed meanwhile."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from aetheris.protocol.planning.contract import ContractStatus
from aetheris.runtime.process.crash import ORDERED, ORDERS, VARIABLE
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.policies import ASK_IRREVERSIBLE, ruled_by
from tests.testkit.rig import Rig, poke, running_rig, wait

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

SERVICES = ("planner-0", "ledger-0", "executor-0", "prober-0", "verifier-0", "gateway-0")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    folder = tmp_path_factory.mktemp("waits")
    with running_rig(folder, {VARIABLE: ORDERED, **ruled_by(folder, ASK_IRREVERSIBLE)}) as rig:
        yield rig


def test_a_signal_lets_a_waiting_job_go_on(rig: Rig) -> None:
    shipped = fresh("shipped")
    job = rig.system.submit(wait("paid", "p"), poke("ship", {"$ref": "paid#/tag"}))
    view = rig.system.wait_status(job, "waiting")
    assert (view["steps"][0]["state"], view["why"]) == ("waiting", "paid waits for signal")
    first = rig.system.signal(job, "p", {"tag": shipped})
    assert (first.status_code, first.json()["event"]) == (200, "signal_received")
    again = rig.system.signal(job, "p", {"tag": shipped})
    assert (again.status_code, again.json()) == (200, first.json())
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "completed"
    assert rig.external.count(shipped) == 1
    assert rig.system.signal(job, "p", {"tag": shipped}).json() == first.json()
    assert len(rig.system.events(job, "signal_received", "wait_completed")) == 2
    rig.system.verified(job)


def test_a_signal_may_come_before_its_wait(rig: Rig) -> None:
    early = fresh("early")
    held = rig.external.hold(early)
    slow = {"id": "slow", "tool": "patient_idempotent", "args": {"tag": early, "hold": early}}
    job = rig.system.submit(slow, wait("paid", "p", "slow"))
    assert rig.system.signal(job, "p", 5).status_code == 200
    assert rig.system.events(job, "wait_completed") == []
    held.unlink()
    rig.system.wait_ended([job])
    assert rig.system.job(job)["result"] == {"paid": 5}


def test_what_no_signal_can_do_is_refused_and_leaves_the_log_as_it_is(rig: Rig) -> None:
    job = rig.system.submit(wait("paid", "p"), wait("sent", "s", "paid"))
    rig.system.wait_status(job, "waiting")
    assert rig.system.signal(job, "p", 1).status_code == 200
    until(lambda: len(rig.system.events(job, "job_waiting")) == 2, 60)
    before = rig.system.events(job)
    used, undeclared = rig.system.signal(job, "p", 2), rig.system.signal(job, "x", 1)
    assert (used.status_code, used.json()["error"]["code"]) == (409, "signal_conflict")
    assert (undeclared.status_code, undeclared.json()["error"]["details"]["field"]) == (400, "correlation_key")
    assert rig.system.signal(job, "s", "x" * 70_000).status_code == 400
    assert rig.system.signal("no-such-job", "p").status_code == 404
    assert rig.system.events(job) == before
    assert rig.system.api.post(f"/jobs/{job}/cancel", json={}).status_code == 200
    rig.system.wait_ended([job])
    assert rig.system.signal(job, "s", 1).status_code == 409
    assert [event["data"]["reason"] for event in rig.system.events(job, "invocation_rejected")] == ["cancelled"]


def test_a_timeout_fails_its_node(rig: Rig) -> None:
    job = rig.system.submit(wait("paid", "p", timeout_s=0.3), poke("ship", "never", "paid"))
    rig.system.wait_ended([job])
    view = rig.system.job(job)
    assert (view["status"], view["steps"][0]["state"], view["steps"][0]["reason"]) == ("failed", "cancelled", "expired")
    assert rig.external.count("never") == 0
    assert rig.system.signal(job, "p", 1).status_code == 409


def test_the_command_signals(rig: Rig) -> None:
    job = rig.system.submit(wait("paid", "p"))
    command = [sys.executable, "-m", "aetheris.cli", "signal", job, "p", "--payload", '{"ok": true}']
    completed = subprocess.run(
        [*command, "--data", str(rig.system.data), "--json"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"AETHERIS_DATA": str(rig.system.data)},
    )
    assert json.loads(completed.stdout)["event"] == "signal_received"
    rig.system.wait_ended([job])
    assert rig.system.job(job)["result"] == {"paid": {"ok": True}}


@dataclass(frozen=True)
class Contract:
    """One step's contract, and what can be asked of it over HTTP: each answers with its status."""

    rig: Rig
    job: str
    node: str
    key: str = "k"
    """What a node of the job waits for, or has waited for."""

    def view(self) -> dict[str, Any]:
        (found,) = self.views()
        return found

    def views(self) -> list[dict[str, Any]]:
        """None before the plan is in the log."""
        answer = self.rig.system.api.get(f"/jobs/{self.job}/contracts", params={"level": "request"})
        return [one for one in answer.json()["contracts"] if one["node_id"] == self.node]

    def reaches(self, status: str) -> "Contract":
        until(lambda: [one["status"] for one in self.views()] == [status], 30)
        return self

    def ended(self) -> "Contract":
        """Itself, once nothing more is written of its job."""
        self.rig.system.wait_ended([self.job])
        until(lambda: self.rig.system.events(self.job, "job_sealed") != [], 30)
        return self

    def post(self, path: str, **body: Any) -> int:
        """By whoever submitted nothing."""
        system = self.rig.system
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
        return self.rig.system.signal(self.job, self.key, "other").status_code

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


def asking(rig: Rig, tag: str, **more: str) -> Contract:
    """A call that waits for its approval, in a job whose signal was used."""
    job = rig.system.submit(wait("w", "k"), irreversible(tag, **more))
    assert rig.system.signal(job, "k", 1).status_code == 200
    until(lambda: len(rig.system.events(job, "approval_requested", "job_waiting")) == 3, 30)
    return Contract(rig, job, "a").reaches("waiting")


def parked(rig: Rig, tag: str = "lost") -> Contract:
    job = rig.system.submit({"id": "a", "tool": "poke_lost", "args": {"tag": tag}}, wait("w", "k", "a"))
    rig.system.wait_status(job, "waiting")
    return Contract(rig, job, "a").reaches("waiting")


def running(rig: Rig, tag: str, hold: str, tool: str = "patient_probeable") -> Contract:
    job = rig.system.submit(wait("w", "k"), irreversible(tag, tool, hold))
    assert rig.system.signal(job, "k", 1).status_code == 200
    contract = Contract(rig, job, "a")
    if tool == "patient_irreversible":
        until(lambda: rig.system.events(job, "approval_requested") != [], 30)
        assert contract.approve() == 200
    rig.external.wait_for(1, tag)
    return contract.reaches("running")


def refused(rig: Rig, hold: str) -> dict[Contract, tuple[str, list[Ask]]]:
    """Contracts at rest, in each state at least one, and what can't be asked of them. Left out: repeats, and

    signals that come before their wait: they are kept.
    """

    def but(*asks: Ask) -> list[Ask]:
        return [ask for ask in REQUEST if ask not in asks]

    first = rig.system.submit(wait("w", "k"), irreversible("first"), wait("later", "l", "w"))
    rig.system.wait_status(first, "waiting")
    found: dict[Contract, tuple[str, list[Ask]]] = {
        Contract(rig, first, "a"): ("pending", but(Contract.signal)),
        Contract(rig, first, "later"): ("pending", but(Contract.signal)),
        Contract(rig, first, "w"): ("waiting", but(Contract.signal, Contract.cancel)),
        asking(rig, "asked"): ("waiting", but(Contract.approve, Contract.reject, Contract.cancel)),
        parked(rig): ("waiting", but(Contract.retry, Contract.signal, Contract.cancel)),
        running(rig, fresh("unasked"), hold): ("running", but(Contract.cancel)),
    }
    once = running(rig, fresh("approved"), hold, "patient_irreversible")
    found[once] = ("running", but(Contract.approve, Contract.go_on, Contract.cancel))

    completed = asking(rig, "completed")
    assert completed.approve() == 200
    found[completed.ended()] = ("completed", but(Contract.approve, Contract.go_on))
    found[Contract(rig, completed.job, "w")] = ("completed", but())
    failed = rig.system.submit({"id": "a", "tool": "poke_refused"}, wait("w", "k", "a"))
    found[Contract(rig, failed, "a").ended()] = ("failed", but())
    given_up = parked(rig)
    assert given_up.of_it("resolve", verdict="not_executed", evidence="asked them") == 200
    found[given_up.ended()] = ("failed", but())
    rejected = asking(rig, "rejected")
    assert rejected.reject() == 200
    found[rejected.ended()] = ("rejected", but(Contract.reject, Contract.go_on))
    cancelled = asking(rig, "cancelled")
    assert cancelled.cancel() == 200
    found[cancelled.ended()] = ("cancelled", but())
    found[Contract(rig, rig.system.submit(wait("w", "k", timeout_s=0.2)), "w").ended()] = ("cancelled", but())
    return found


def test_what_a_state_does_not_allow_is_409_and_changes_nothing(rig: Rig) -> None:
    """Respond, resume and cancel against contracts in each of the seven states: no command and no event is written."""
    held = rig.external.hold(fresh("matrix"))
    contracts = refused(rig, held.name)
    asked = {(state, REQUEST[ask]) for state, asks in contracts.values() for ask in asks}
    every = set(product(ContractStatus, ("respond", "resume", "cancel")))
    assert asked >= every - LEGAL
    before = rig.system.ends(*TOLD), {contract: contract.view() for contract in contracts}
    assert {contract: view["status"] for contract, view in before[1].items()} == {
        contract: state for contract, (state, _) in contracts.items()
    }
    answers = {(state, at, REQUEST[ask]): ask(at) for at, (state, asks) in contracts.items() for ask in asks}
    assert {cell: status for cell, status in answers.items() if status != 409} == {}
    assert (rig.system.ends(*TOLD), {contract: contract.view() for contract in contracts}) == before
    held.unlink()


def test_what_a_state_allows_moves_the_contract(rig: Rig) -> None:
    approved, rejected = asking(rig, "yes"), asking(rig, "no")
    assert (approved.approve(), rejected.reject()) == (200, 200)
    approved.reaches("completed")
    rejected.reaches("rejected")

    early = rig.system.submit(wait("w", "k"), wait("later", "l", "w"))
    waiting, later = Contract(rig, early, "w").reaches("waiting"), Contract(rig, early, "later", "l")
    assert later.signal() == 200
    assert (later.view()["status"], later.view()["transitions"]) == ("pending", [])
    assert waiting.signal() == 200
    later.reaches("completed")

    tag = fresh("lost")
    lost = parked(rig, tag)
    assert lost.retry() == 200
    rig.external.wait_for(2, tag)

    cancelled, called_off = asking(rig, "cancelled"), parked(rig)
    assert (cancelled.cancel(), called_off.cancel()) == (200, 200)
    view = cancelled.ended().reaches("cancelled").view()
    assert ([moved["trigger"] for moved in view["transitions"]], view["has_effect"]) == (
        ["start", "suspend", "cancel"],
        "none",
    )
    view = called_off.reaches("cancelled").view()
    assert (view["has_effect"], view["outcome"]) == ("possible", "cancelled")


def test_a_step_that_runs_is_settled_before_it_is_cancelled(rig: Rig) -> None:
    name = fresh("settled")
    held = rig.external.hold(name)
    contract = running(rig, name, name, "patient_irreversible")
    assert (contract.cancel(), contract.cancel()) == (200, 200)
    assert contract.view()["has_effect"] == "possible"
    held.unlink()
    assert contract.reaches("completed").view()["has_effect"] == "confirmed"
    assert len(rig.system.events(contract.job, "invocation_cancel_requested")) == 1


def test_the_command_cancels_one_step(rig: Rig) -> None:
    job = rig.system.submit(wait("w", "k"))
    Contract(rig, job, "w").reaches("waiting")
    command = [sys.executable, "-m", "aetheris.cli", "cancel", job, "--node", "w", "--reason", "enough", "--json"]
    completed = subprocess.run(
        [*command, "--data", str(rig.system.data)], capture_output=True, text=True, check=True, env=os.environ
    )
    assert json.loads(completed.stdout)["event"] == "invocation_rejected"
    rig.system.wait_ended([job])
    (step,) = rig.system.job(job)["steps"]
    assert (step["state"], step["reason"]) == ("cancelled", "cancelled")


def test_a_planner_dies_between_the_end_of_a_wait_and_its_consumption(rig: Rig) -> None:
    system, consumed = rig.system, fresh("consumed")
    job = system.submit(wait("paid", "p"), poke("ship", {"$ref": "paid#"}))
    system.wait_status(job, "waiting")
    orders = system.data / ORDERS
    orders.with_suffix(".new").write_text("after_wait")
    orders.with_suffix(".new").replace(orders)
    assert rig.system.signal(job, "p", consumed).status_code == 200
    until(lambda: not orders.exists(), 30)
    system.wait_ended([job])
    assert (system.job(job)["status"], rig.external.count(consumed)) == ("completed", 1)
    reports = [event["data"]["node_id"] for event in rig.system.events(job, "node_finished")]
    assert reports == ["paid", "ship"]


def test_everything_is_killed_while_jobs_wait(rig: Rig) -> None:
    """Each signal is consumed once, whichever process reads it; the timer ends at the time that its event names."""
    system, own = rig.system, fresh("all")
    jobs = [system.submit(wait("paid", "p"), poke("ship", {"$ref": "paid#"})) for _ in range(20)]
    early = [
        system.submit(poke("a", f"{own}-a{n}"), wait("paid", "p", "a"), poke("ship", {"$ref": "paid#"}))
        for n in range(5)
    ]
    timer = system.submit({"id": "t", "kind": "timer", "wait": {"for_s": 8}}, poke("ship", f"{own}-timer", "t"))
    for number, job in enumerate(early):
        assert rig.system.signal(job, "p", f"{own}-early-{number}").status_code == 200
    for job in jobs:
        system.wait_status(job, "waiting")
    until(lambda: rig.system.events(timer, "job_waiting") != [], 30)
    (due,) = rig.system.events(timer, "job_waiting")
    for name in SERVICES:
        system.kill(name)
    system.flush_redis()
    system.wait_ready()
    until(lambda: all(system.job(job).get("status") for job in jobs), 30)
    for _ in range(2):
        for number, job in enumerate(jobs):
            assert rig.system.signal(job, "p", f"{own}-{number}").status_code == 200
    system.wait_ended([*jobs, *early, timer], 60)
    tags = [f"{own}-{number}" for number in range(20)] + [f"{own}-early-{number}" for number in range(5)]
    tags.append(f"{own}-timer")
    assert {tag: rig.external.count(tag) for tag in tags} == dict.fromkeys(tags, 1)
    for job in [*jobs, *early]:
        assert len(rig.system.events(job, "signal_received")) == 1
        assert len(rig.system.events(job, "wait_completed")) == 1
    (ended,) = rig.system.events(timer, "wait_completed")
    assert ended["time"] >= due["data"]["due_at"].replace("+00:00", "Z")
    for job in [jobs[0], early[0], timer]:
        system.verified(job)
