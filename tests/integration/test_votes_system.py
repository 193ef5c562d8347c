"""On the real system: two of two persons, whatever agents and editors say, and whichever ledger counts."""

import json
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.protocol.base.principals import ORDINARY, PrincipalKind
from tests.testkit.approvers import respond
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.policies import ALLOW_REST, ruled_by
from tests.testkit.rig import Rig, running_rig
from tests.testkit.system import System
from tests.testkit.tokens import entry_of, headers_of, write_tokens

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

PEOPLE = {"ann": "acme", "bob": "acme", "carol": "acme", "dan": "acme"}
POLICY = f"""
[[rules]]
name = "two"
tools = ["poke_irreversible", "poke_lost"]
effect = "approval"
approvals = 2
{ALLOW_REST}"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    folder: Path = tmp_path_factory.mktemp("votes")
    robot = entry_of("robot", "acme", kind=PrincipalKind.AGENT)
    weak = entry_of("weak", "acme", roles=ORDINARY)
    write_tokens(folder / "data", PEOPLE, robot, weak)
    with running_rig(folder, ruled_by(folder, POLICY)) as running:
        yield running


def ask(system: System, tag: str) -> tuple[str, str]:
    """A job that waits for two, and the request's id."""
    job = system.submit({"id": "pay", "tool": "poke_irreversible", "args": {"tag": tag}})
    until(lambda: any(step.get("request_id") for step in system.job(job)["steps"]), 60.0)
    return job, system.job(job)["steps"][0]["request_id"]


def listed(system: System, request: str) -> str:
    shown = CliRunner().invoke(app, ["approvals", "--data", str(system.data), "--limit", "200"])
    return next(line for line in shown.stdout.splitlines() if request in line)


def test_a_call_starts_when_two_persons_have_said_yes(rig: Rig) -> None:
    tag = fresh("two")
    job, request = ask(rig.system, tag)
    refused = respond(rig.system, "robot", request)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_an_approver")
    assert "only a person may approve this by rule two" in refused.json()["error"]["message"]
    first = respond(rig.system, "bob", request)
    assert first.status_code == 200, first.text
    assert (first.json()["event"], first.json()["votes"]) == ("approval_voted", {"given": ["bob"], "needed": 2})
    assert respond(rig.system, "bob", request).status_code == 200, "the same answer again"
    until(lambda: "1 of 2 (bob)" in listed(rig.system, request), 30.0)
    rig.system.kill("ledger-0")
    assert rig.external.count(tag) == 0
    second = respond(rig.system, "carol", request)
    assert second.json()["votes"] == {"given": ["bob", "carol"], "needed": 2}, second.text
    rig.system.wait_ended([job])
    assert rig.external.count(tag) == 1
    assert len(rig.system.events(job, "approval_voted")) == 2
    (decided,) = rig.system.events(job, "approval_decided")
    assert decided["data"]["votes"] == ["bob", "carol"]
    assert decided["data"]["principal"]["kind"] == "person"
    late = respond(rig.system, "dan", request)
    assert (late.status_code, late.json()["error"]["code"]) == (409, "answered")
    rig.system.verified(job)


def resolve(system: System, who: str, job: str, verdict: str = "happened", **more: Any) -> httpx.Response:
    path = f"/jobs/{job}/contracts/{system.job(job)['steps'][0]['execution_id']}/resolve"
    body = {"verdict": verdict, "evidence": "their list"} | more
    return system.api.post(path, json=body, headers=headers_of(who))


def test_what_became_of_a_call_in_doubt_is_settled_when_two_say_the_same(rig: Rig) -> None:
    system, tag = rig.system, fresh("lost")
    job = system.submit({"id": "pay", "tool": "poke_lost", "args": {"tag": tag}, "irreversible": True})
    until(lambda: any(step.get("request_id") for step in system.job(job)["steps"]), 60.0)
    for who in ("bob", "carol"):
        assert respond(system, who, system.job(job)["steps"][0]["request_id"]).status_code == 200
    until(lambda: "is parked" in str(system.job(job).get("why")), 60.0)
    robot = resolve(system, "robot", job)
    assert (robot.status_code, robot.json()["error"]["code"]) == (403, "not_an_approver")
    for again in range(2):
        first = resolve(system, "bob", job, result={"id": 7})
        assert (first.status_code, first.json()["event"]) == (200, "resolution_voted"), (again, first.text)
        assert first.json()["votes"] == {"given": ["bob"], "needed": 2}
    assert resolve(system, "dan", job, "not_executed").json()["votes"] == {"given": ["dan"], "needed": 2}
    assert system.types(job, "tool_invocation_finished") == []
    system.kill("ledger-0")
    last = resolve(system, "carol", job, result={"id": 7})
    assert (last.status_code, last.json()["event"]) == (200, "tool_invocation_finished"), last.text
    assert last.json()["votes"] == {"given": ["bob", "carol"], "needed": 2}
    system.wait_ended([job])
    (settled,) = system.events(job, "tool_invocation_finished")
    assert (settled["data"]["votes"], settled["data"]["result"]) == (["bob", "carol"], {"id": 7})
    assert len(system.events(job, "resolution_voted")) == 3
    assert rig.external.count(tag) == 1
    system.verified(job)


def test_two_at_the_same_moment_are_two(rig: Rig) -> None:
    tag = fresh("at-once")
    job, request = ask(rig.system, tag)
    with ThreadPoolExecutor(2) as both:
        answers = list(both.map(lambda who: respond(rig.system, who, request), ("bob", "carol")))
    assert [answer.status_code for answer in answers] == [200, 200], [answer.text for answer in answers]
    rig.system.wait_ended([job])
    assert (rig.external.count(tag), len(rig.system.events(job, "approval_decided"))) == (1, 1)
    rig.system.verified(job)


def test_one_no_decides_and_an_edit_begins_anew(rig: Rig) -> None:
    tag, changed = fresh("edited"), fresh("changed")
    job, request = ask(rig.system, tag)
    assert respond(rig.system, "bob", request).status_code == 200
    edited = respond(rig.system, "carol", request, "edit", data={"tag": changed})
    again = edited.json()["next_request_id"]
    assert respond(rig.system, "carol", again).status_code == 403, "the editor"
    assert respond(rig.system, "bob", again).json()["votes"] == {"given": ["bob"], "needed": 2}
    assert respond(rig.system, "dan", again, "reject").status_code == 200
    rig.system.wait_ended([job])
    assert (rig.external.count(tag), rig.external.count(changed)) == (0, 0)
    rig.system.verified(job)


def test_in_an_emergency_one_decides_alone_and_everybody_can_see_it(rig: Rig) -> None:
    tag = fresh("alone")
    job, request = ask(rig.system, tag)
    assert respond(rig.system, "bob", request, break_glass=True).status_code == 400, "without a reason"
    weak = respond(rig.system, "weak", request, break_glass=True, comment="it burns")
    assert (weak.status_code, rig.external.count(tag)) == (403, 0)
    assert respond(rig.system, "bob", request, break_glass=True, comment="it burns").status_code == 200
    rig.system.wait_ended([job])
    assert rig.external.count(tag) == 1
    report = rig.system.report(job)
    assert (report["violations"], [one["by"] for one in report["glass_broken"]]) == ([], ["bob"])
    lines = (rig.system.data / "logs" / "ledger-0.log").read_text().splitlines()
    assert [line for line in lines if "broke the glass" in line and job in line]
    shown = CliRunner().invoke(app, ["audit", "--as", "bob", "--data", str(rig.system.data)])
    assert "broke_glass" in shown.stdout


def test_another_policy_is_tried_on_what_the_log_has(rig: Rig, tmp_path: Path) -> None:
    job = rig.system.submit({"id": "pay", "tool": "poke_probeable", "args": {"tag": fresh("tried")}})
    rig.system.wait_ended([job])
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rules]]\nname = "no"\ntools = ["poke_probeable"]\neffect = "deny"\n' + ALLOW_REST)
    before = rig.external.count()
    shown = CliRunner().invoke(app, ["policy", "test", str(policy), "--data", str(rig.system.data), "--json"])
    found = [one for one in json.loads(shown.stdout)["differences"] if one["job_id"] == job]
    assert [(one["then"], one["now"], one["now_by"]) for one in found] == [("allow", "deny", "no")], shown.output
    assert rig.external.count() == before
