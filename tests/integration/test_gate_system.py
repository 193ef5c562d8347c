"""On the real system: no submitter retries, no editor approves his edit, no job repeats what its session does.

Effects are counted by an outside that does not deduplicate.
"""

from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from aetheris.cli import token_files
from aetheris.protocol.base.principals import PrincipalKind, Role
from tests.testkit.approvers import headers_of, respond, running_approvers
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.policies import ALLOW_REST
from tests.testkit.rig import Rig
from tests.testkit.tokens import token_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

PATIENCE_S = 60.0
COMMANDS = "aetheris.jobs.commands.v1"
POLICY = f"""
[[rules]]
name = "ask"
tools = ["poke_*"]
irreversible = true
effect = "approval"
[[rules]]
name = "named"
tools = ["poke_lost", "poke_opaque"]
effect = "allow"
approvers = ["carol"]
{ALLOW_REST}"""


@dataclass(frozen=True)
class ApproversRig(Rig):
    """Ann submits, Bob and Carol decide."""

    def post(self, who: str, path: str, **body: Any) -> httpx.Response:
        return self.system.api.post(path, json=body, headers=headers_of(who))

    def step(self, job: str) -> dict[str, Any]:
        """Once the planner has taken the job up."""
        until(lambda: self.system.job(job)["steps"], PATIENCE_S)
        (step,) = self.system.job(job)["steps"]
        return step

    def respond(self, who: str, request: str, action: str = "approve", **more: Any) -> httpx.Response:
        return respond(self.system, who, request, action, **more)

    def resolve(self, who: str, job: str, verdict: str = "retry") -> httpx.Response:
        path = f"/jobs/{job}/contracts/{self.step(job)['execution_id']}/resolve"
        return self.post(who, path, verdict=verdict, evidence="their list is empty")

    def asks(self, job: str) -> str:
        """The open request, once there is one."""
        until(lambda: self.step(job).get("request_id") is not None, PATIENCE_S)
        return self.step(job)["request_id"]

    def parked(self, job: str, times: int = 1) -> None:
        until(lambda: len(self.system.types(job, "invocation_parked")) == times, PATIENCE_S)
        until(lambda: "is parked" in str(self.system.job(job).get("why")), PATIENCE_S)

    def told(self, job: str) -> tuple[dict[tuple[str, int], int], list[str]]:
        """All commands, and what the job's log has; other jobs may be sealed meanwhile."""
        return self.system.ends(COMMANDS), self.system.types(job)

    def refused(self, answer: httpx.Response, sentence: str) -> None:
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_an_approver"), answer.text
        assert sentence in answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[ApproversRig]:
    with running_approvers(tmp_path_factory.mktemp("gate"), POLICY) as rig:
        yield ApproversRig(rig.system, rig.external)


def pay(tag: str) -> dict[str, Any]:
    return {"id": "a", "tool": "poke_lost", "args": {"tag": tag}, "irreversible": True}


def test_three_retries_need_three_approvals_and_none_of_them_is_the_submitters(rig: ApproversRig) -> None:
    tag = fresh("again")
    job = rig.system.submit(pay(tag))
    assert rig.respond("bob", rig.asks(job)).status_code == 200
    rig.parked(job)
    for tries in (1, 2, 3):
        assert rig.external.count(tag) == tries
        before = rig.told(job)
        for verdict in ("retry", "happened", "not_executed"):
            rig.refused(rig.resolve("ann", job, verdict), "who submitted the job may not resolve")
        assert rig.told(job) == before
        first = f"{job}:{rig.step(job)['execution_id']}"
        assert rig.resolve("bob", job).status_code == 200
        request = rig.asks(job)
        assert request == f"{first}:{tries + 1}"
        assert rig.system.wait_status(job, "waiting")["steps"][0]["state"] == "waiting"
        rig.system.kill("ledger-0")  # neither the question nor the answer is lost with it
        rig.refused(rig.respond("ann", request), "who submitted the job may not approve")
        assert rig.respond("bob", first).status_code == 200, "the same answer as before, to what was asked before"
        assert rig.external.count(tag) == tries
        assert rig.respond("carol", request).status_code == 200
        rig.parked(job, tries + 1)
    assert rig.external.count(tag) == 4
    assert len(rig.system.events(job, "approval_decided")) == 4
    assert rig.resolve("bob", job, "happened").status_code == 200
    rig.system.wait_ended([job])
    report = rig.system.report(job)
    assert report["violations"] == []
    again = [(one["by"], one["token"], one["evidence"]) for one in report["reopened_by_hand"]]
    assert again == [("bob", token, "their list is empty") for token in (2, 3, 4)]
    assert all(one["said_at"] for one in report["reopened_by_hand"])


def test_a_no_to_the_retry_ends_it_unsure(rig: ApproversRig) -> None:
    tag = fresh("no")
    job = rig.system.submit(pay(tag))
    assert rig.respond("bob", rig.asks(job)).status_code == 200
    rig.parked(job)
    assert rig.resolve("bob", job).status_code == 200
    assert rig.respond("carol", rig.asks(job), "reject").status_code == 200
    rig.system.wait_ended([job])
    view = rig.system.job(job)
    assert (view["status"], rig.step(job)["effect"]) == ("failed", "possible")
    assert rig.external.count(tag) == 1
    assert rig.system.report(job)["violations"] == []


def test_an_editor_does_not_approve_his_own_edit(rig: ApproversRig) -> None:
    tag, changed = fresh("account"), fresh("bobs-own")
    call = {"id": "a", "tool": "poke_irreversible", "args": {"tag": tag}}
    job = rig.system.submit(call)
    edited = rig.respond("bob", rig.asks(job), "edit", data={"tag": changed})
    assert edited.status_code == 200, edited.text
    request = edited.json()["next_request_id"]
    until(lambda: rig.step(job).get("request_id") == request, PATIENCE_S)
    before = rig.told(job)
    rig.refused(rig.respond("bob", request), "who edited the call may not approve it")
    rig.refused(rig.respond("ann", request), "who submitted the job may not approve")
    assert rig.told(job) == before
    assert rig.external.count(changed) == 0
    assert rig.respond("carol", request).status_code == 200
    rig.system.wait_ended([job])
    assert (rig.external.count(tag), rig.external.count(changed)) == (0, 1)
    rig.system.verified(job)


def test_the_rule_that_allowed_a_call_names_who_resolves_it(rig: ApproversRig) -> None:
    tag = fresh("named")
    job = rig.system.submit({"id": "a", "tool": "poke_lost", "args": {"tag": tag}})
    rig.parked(job)
    rig.refused(rig.resolve("bob", job, "happened"), "others are named to resolve")
    assert rig.resolve("carol", job, "happened").status_code == 200
    rig.system.wait_ended([job])
    (allowed,) = rig.system.data_of(job, "policy_allowed")
    assert (allowed["rule"], allowed["approvers"]) == ("named", ["carol"])
    rig.system.verified(job)


def test_a_policy_that_is_activated_takes_nobody_off_a_call_that_is_under_way(rig: ApproversRig) -> None:
    """Its rule goes by another name now, and names somebody else."""
    tag = fresh("renamed")
    held = rig.external.hold(tag)
    job = rig.system.submit({"id": "a", "tool": "poke_opaque", "args": {"tag": tag, "hold": str(held)}})
    rig.external.wait_for(1, tag, PATIENCE_S)
    renamed = POLICY.replace('"named"', '"renamed"').replace('"carol"', '"bob"')
    assert rig.post("bob", "/policies", policy=renamed).status_code == 200
    try:
        rig.system.kill("executor-0")
        rig.parked(job)
        rig.refused(rig.resolve("bob", job, "happened"), "others are named to resolve its calls in doubt by rule named")
        assert rig.resolve("carol", job, "happened").status_code == 200
        rig.system.wait_ended([job])
        rig.system.verified(job)
    finally:
        assert rig.post("bob", "/policies", policy=POLICY).status_code == 200


def test_who_acts_in_the_place_of_who_is_named_resolves_until_that_ends(rig: ApproversRig) -> None:
    tag = fresh("lent")
    job = rig.system.submit({"id": "a", "tool": "poke_lost", "args": {"tag": tag}})
    rig.parked(job)
    rig.refused(rig.resolve("bob", job, "happened"), "others are named to resolve")
    lend(rig, "ann", "carol")
    rig.refused(rig.resolve("ann-for-carol", job, "happened"), "who submitted the job may not resolve")
    lend(rig, "bob", "carol", for_s=-1)
    assert rig.resolve("bob-for-carol", job, "happened").status_code == 401
    lend(rig, "bob", "carol")
    assert rig.resolve("bob-for-carol", job, "happened").status_code == 200
    rig.system.wait_ended([job])
    (finished,) = (one for one in rig.system.data_of(job, "tool_invocation_finished") if one["via"] == "human")
    assert (finished["by"], finished["principal"]["delegation"]["principal"]) == ("bob", "carol")
    rig.system.verified(job)


def lend(rig: ApproversRig, who: str, lender: str, *, for_s: float = 3600) -> None:
    """The token by which somebody acts in another's place; it takes the place of the one before."""
    until = datetime.now(UTC) + timedelta(seconds=for_s)
    token, roles = token_of(f"{who}-for-{lender}"), (Role.RESOLVE, Role.READ)
    made = token_files.entry(token, who, "acme", kind=PrincipalKind.PERSON, roles=roles, expires=until, acts_for=lender)
    with token_files.changed(rig.system.data / "tokens.toml") as entries:
        entries[:] = [*(one for one in entries if one.sha256 != made.sha256), made]


def test_of_two_jobs_of_a_session_one_waits_for_the_other_and_does_not_repeat_it(rig: ApproversRig) -> None:
    tag, session = fresh("once"), fresh("session")
    held = rig.external.hold(tag)
    node = {"id": "a", "tool": "once_a_session", "args": {"tag": tag, "hold": held.name}}
    body = {"plan": {"nodes": [node]}, "session": session}
    first = rig.post("ann", "/jobs", **body).json()["job_id"]
    rig.external.wait_for(1, tag)
    second = rig.post("ann", "/jobs", **body).json()["job_id"]
    text = f"a waits for an equal call that is under way: {first}/a"
    until(lambda: rig.system.job(second).get("why") == text, PATIENCE_S)
    rig.system.kill("ledger-0")
    rig.system.wait_ready()
    held.unlink()
    rig.system.wait_ended([first, second])
    assert rig.external.count(tag) == 1
    assert rig.system.job(first)["status"] == "completed"
    assert (rig.step(second)["state"], rig.step(second)["reason"]) == ("rejected", "duplicate_of")
    rig.system.verified(second)
