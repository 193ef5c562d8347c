"""Approvals on the whole system: a yes holds for what was shown, counts once, and outlives everything."""

import asyncio
import json
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Respond
from tests.testkit.approvers import headers_of, respond, running_approvers
from tests.testkit.attempts import fresh
from tests.testkit.external_server import ExternalServer, until
from tests.testkit.policies import ALLOW_REST
from tests.testkit.principals import said_by
from tests.testkit.rig import Rig
from tests.testkit.system import System

pytestmark = pytest.mark.real

POLICY = """
[[rules]]
name = "brief"
tools = ["poke_irreversible"]
when = "args.tag.startsWith('brief')"
effect = "approval"
expires_s = 0.5
[[rules]]
name = "ask"
tools = ["poke_irreversible"]
effect = "approval"
[[rules]]
name = "never"
tools = ["poke_probeable"]
when = "args.tag == 'denied' && job.tenant == 'acme'"
effect = "deny"
[[rules]]
name = "few"
tools = ["poke_probeable"]
effect = "allow"
budget = {calls = 2}
[[rules]]
name = "little"
tools = ["poke_idempotent"]
when = "has(args.delay_s)"
effect = "allow"
budget = {amount = "delay_s", most = 0.3}
[[rules]]
name = "slow"
tools = ["poke_opaque"]
effect = "allow"
rate = {calls = 1, per_s = 1}
"""
FORM = {
    "title": "Which way?",
    "fields": [
        {"name": "tag", "type": "text", "label": "Tag", "required": True},
        {"name": "hurry", "type": "boolean", "label": "Hurry", "default": False},
    ],
}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_approvers(tmp_path_factory.mktemp("approvals"), POLICY + ALLOW_REST) as rig:
        yield rig


def ask(system: System, tag: str, **node: Any) -> tuple[str, str]:
    """A job that waits for an approval: its id, and the request's."""
    job = system.submit({"id": "pay", "tool": "poke_irreversible", "args": {"tag": tag}} | node)
    return job, wait_asked(system, job)


def wait_asked(system: System, job: str, after: str = "") -> str:
    return system.wait_asked(job, after=after)["request_id"]


def command(system: System, *argv: str, ends: int = 0) -> str:
    """What the command prints."""
    outcome = CliRunner().invoke(app, [*argv, "--data", str(system.data)])
    assert outcome.exit_code == ends, outcome.output
    return outcome.output


def test_a_yes_counts_once_for_what_was_shown_and_a_replayed_one_starts_nothing(
    system: System, external: ExternalServer
) -> None:
    tag = fresh("once")
    job, request = ask(system, tag)
    shown = system.api.get(f"/ecs/status/{request}").json()
    assert (shown["status"], shown["execution_state"]) == ("waiting", "waiting")
    assert shown["request"]["context"]["arguments"]["tag"] == tag
    assert system.api.post("/ecs/continue", json={"request_id": request}).status_code == 409
    assert respond(system, "ann", request, "approve").status_code == 403
    assert respond(system, "eve", request, "approve").status_code == 404
    assert (
        respond(system, "bob", request, "approve", data={"tag": "else"}).json()["error"]["details"]["field"] == "data"
    )
    assert external.count(tag) == 0
    reported = respond(system, "bob", request, "approve")
    assert (reported.status_code, reported.json()["event"]) == (200, "approval_decided"), reported.text
    again = respond(system, "bob", request, "approve")
    assert (again.status_code, again.json()["command_id"]) == (200, reported.json()["command_id"])
    for who, action in (("bob", "reject"), ("carol", "approve"), ("carol", "reject")):
        assert respond(system, who, request, action).status_code == 409
    system.wait_ended([job])
    for who, action in (("bob", "reject"), ("carol", "approve")):
        assert respond(system, who, request, action).status_code == 409
    assert respond(system, "bob", request, "approve").status_code == 200
    assert external.count(tag) == 1
    assert system.api.post("/ecs/continue", json={"request_id": request}).json()["status"] == "approved"
    system.verified(job)
    (decided,) = system.data_of(job, "approval_decided")
    assert decided["approver"] == "bob"


def test_a_no_rejects_and_nothing_is_called(system: System, external: ExternalServer) -> None:
    tag = fresh("never")
    job, request = ask(system, tag)
    assert respond(system, "bob", request, "reject", comment="no").status_code == 200
    system.wait_ended([job])
    (step,) = system.job(job)["steps"]
    assert (step["state"], step["reason"]) == ("rejected", "approval")
    assert external.count(tag) == 0
    assert respond(system, "bob", request, "approve").status_code == 409
    system.verified(job)


def test_of_two_answers_at_once_one_wins_and_the_other_is_told(system: System, external: ExternalServer) -> None:
    async def race(request: str) -> list[int]:
        base = f"{system.state().gateway}/api"
        async with httpx.AsyncClient(base_url=base, timeout=60, trust_env=False) as api:
            reported = (("bob", "approve"), ("carol", "reject"))
            answers = [
                api.post(
                    "/ecs/respond",
                    json={"request_id": request, "action": action},
                    headers=headers_of(who),
                )
                for who, action in reported
            ]
            return [answer.status_code for answer in await asyncio.gather(*answers)]

    for number in range(5):
        tag = fresh(f"race-{number}")
        job, request = ask(system, tag)
        statuses = asyncio.run(race(request))
        assert sorted(statuses) == [200, 409]
        system.wait_ended([job])
        assert external.count(tag) == (1 if statuses[0] == 200 else 0)


def test_an_edit_voids_the_yes_of_before_and_only_the_new_call_runs(system: System, external: ExternalServer) -> None:
    before, after = fresh("before"), fresh("after")
    job, request = ask(system, before)
    bad = respond(system, "bob", request, "edit", data={"tag": 3})
    assert (bad.status_code, bad.json()["error"]["details"]["field"]) == (400, "data.tag")
    reported = respond(system, "bob", request, "edit", data={"tag": after})
    assert (reported.status_code, reported.json()["event"]) == (200, "approval_requested"), reported.text
    new = reported.json()["next_request_id"]
    assert respond(system, "bob", request, "approve").status_code == 409
    assert respond(system, "bob", request, "edit", data={"tag": after}).status_code == 200
    back = respond(system, "bob", reported.json()["next_request_id"], "edit", data={"tag": before})
    assert (back.status_code, back.json()["error"]["code"]) == (409, "edited_back")
    past_the_gateway(system, job, new, {"tag": before})
    assert wait_asked(system, job, after=request) == new
    assert respond(system, "carol", new, "approve").status_code == 200
    system.wait_ended([job])
    assert system.job(job)["status"] == "completed"
    assert (external.count(before), external.count(after)) == (0, 1)
    system.verified(job)
    assert system.api.get(f"/ecs/status/{request}").json()["status"] == "edited"


def past_the_gateway(system: System, job: str, request: str, data: dict[str, Any]) -> None:
    """An edit that the gateway would refuse: the ledger writes nothing, and an operator hears why."""
    body = {"job_id": job, **said_by("bob"), "tenant": "acme", "request_id": request, "action": "edit", "data": data}
    system.say_as(Party.GATEWAY, Topic.JOBS_COMMANDS, job, Respond.model_validate(body | {"as_of": -1}))
    lines = system.data / "logs" / "ledger-0.log"
    until(lambda: "a person's word decides nothing" in lines.read_text(), 30)
    (reported,) = [json.loads(line) for line in lines.read_text().splitlines() if "word decides nothing" in line]
    assert (reported["job_id"], reported["why"].split(":")[0]) == (
        job,
        "the step had these arguments before, and that call was edited",
    )


def test_other_arguments_do_not_run_on_an_approval(system: System, external: ExternalServer) -> None:
    """The plan is changed between the yes and the start (what extra-org/extra#139 ran), with the grant in flight."""
    reviewed, other = fresh("reviewed"), fresh("changed")
    job, request = ask(system, reviewed)
    (plan,) = system.data_of(job, "plan_generated")
    (node,) = plan["task_graph"]["nodes"]
    changed = {"nodes": [node | {"args": node["args"] | {"tag": other}}]}
    revision = ev.PlanGenerated(
        job_id=job, revision=1, plan_hash=digest(changed), diff=changed, planner="static", planner_version="1"
    )
    with system.asleep("executor-0"):
        assert respond(system, "bob", request, "approve").status_code == 200
        system.append_as(Party.PLANNER, revision)
        until(lambda: system.data_of(job, "invocation_rejected") != [], 30)
    system.wait_ended([job])
    (rejected,) = system.data_of(job, "invocation_rejected")
    assert rejected["reason"] == "approval_mismatch"
    assert [step["state"] for step in system.job(job)["steps"]] == ["rejected"]
    assert (external.count(reviewed), external.count(other)) == (0, 0)
    system.verified(job)


def cancel_step(system: System, job: str) -> httpx.Response:
    """Cancel the one step of a job."""
    (step,) = system.job(job)["steps"]
    return system.api.post(f"/jobs/{job}/contracts/{step['execution_id']}/cancel", json={"reason": "enough"})


def test_a_step_that_is_cancelled_behind_a_yes_never_starts(system: System, external: ExternalServer) -> None:
    tag = fresh("taken-back")
    job, request = ask(system, tag)
    with system.asleep("executor-0"):
        assert respond(system, "bob", request, "approve").status_code == 200
        reported = cancel_step(system, job)
        assert (reported.status_code, reported.json()["event"]) == (200, "invocation_rejected"), reported.text
    system.wait_ended([job])
    (step,) = system.job(job)["steps"]
    assert (step["state"], step["reason"], external.count(tag)) == ("cancelled", "cancelled", 0)
    system.verified(job)


def test_a_yes_and_a_cancel_that_nobody_has_read_yet_both_count(system: System, external: ExternalServer) -> None:
    tag = fresh("both")
    job, request = ask(system, tag)
    before = sum(system.ends(Topic.JOBS_COMMANDS).values())
    with ThreadPoolExecutor(2) as threads:
        with system.asleep("ledger-0"):
            yes = threads.submit(respond, system, "bob", request, "approve")
            until(lambda: sum(system.ends(Topic.JOBS_COMMANDS).values()) == before + 1, 30)
            cancelled = threads.submit(cancel_step, system, job)
            until(lambda: sum(system.ends(Topic.JOBS_COMMANDS).values()) == before + 2, 30)
        assert (yes.result().status_code, cancelled.result().status_code) == (200, 200)
    system.wait_ended([job])
    if external.count(tag):
        assert cancelled.result().json()["event"] == "invocation_cancel_requested"
    else:
        assert [one["reason"] for one in system.data_of(job, "invocation_rejected")] == ["cancelled"]
    system.verified(job)


def test_an_approval_does_not_fire_again_on_a_later_turn(system: System, external: ExternalServer) -> None:
    """Neither as its job goes on, nor in the next one of its session, nor by being sent once more.

    In microsoft/agent-framework#6851 an approved call ran again on a later, unrelated turn.
    """
    session, turn, noted = fresh("turns"), fresh("turn"), fresh("note")
    pay = {"id": "pay", "tool": "poke_irreversible", "args": {"tag": turn}}
    pause = {"id": "next", "kind": "wait", "wait": {"key": "next"}, "depends_on": ["pay"]}
    note = {"id": "note", "tool": "poke_idempotent", "args": {"tag": noted}, "depends_on": ["next"]}
    first = system.submit(pay, pause, note, session=session)
    request = wait_asked(system, first)
    assert respond(system, "bob", request, "approve").status_code == 200
    until(lambda: len(system.data_of(first, "job_waiting")) == 2, 30)
    for name in ("planner-0", "ledger-0", "executor-0"):
        system.kill(name)
    reported = system.signal(first, "next")
    assert reported.status_code in (200, 202)
    system.wait_ended([first])
    second = system.submit(pay, session=session)
    asked_again = wait_asked(system, second)
    assert asked_again != request
    assert respond(system, "bob", request, "approve").status_code == 200
    assert system.api.get(f"/ecs/status/{asked_again}").json()["status"] == "waiting"
    assert respond(system, "bob", asked_again, "reject").status_code == 200
    system.wait_ended([second])
    assert (external.count(turn), external.count(noted)) == (1, 1)
    assert len(system.data_of(first, "tool_invocation_started")) == 2
    assert system.data_of(second, "tool_invocation_started") == []


def test_nobody_answers_in_time(system: System, external: ExternalServer) -> None:
    tag = fresh("brief")
    job = system.submit({"id": "pay", "tool": "poke_irreversible", "args": {"tag": tag}})
    system.wait_ended([job])
    (contract,) = system.api.get(f"/jobs/{job}/contracts", params={"level": "transition"}).json()["contracts"]
    assert [moved["trigger"] for moved in contract["transitions"]] == ["start", "suspend", "timeout"]
    assert (contract["status"], contract["has_effect"]) == ("cancelled", "none")
    request = f"{job}:{contract['execution_id']}"
    assert respond(system, "bob", request, "approve").status_code == 409
    assert system.api.get(f"/ecs/status/{request}").json()["status"] == "expired"
    assert external.count(tag) == 0


def test_the_policy_has_its_word_and_each_is_recorded_with_its_rule(system: System, external: ExternalServer) -> None:
    calls = ("denied", fresh("one"), fresh("two"), fresh("three"))
    nodes = [{"id": tag, "tool": "poke_probeable", "args": {"tag": tag}} for tag in calls]
    system.wait_ended([denied := system.submit(nodes[0])])
    (rejected,) = system.data_of(denied, "invocation_rejected")
    assert (rejected["reason"], rejected["detail"], external.count("denied")) == ("policy", "never", 0)

    afterwards = [node | {"depends_on": [before["id"]]} for before, node in pairwise(nodes[1:])]
    system.wait_ended([counted := system.submit(nodes[1], *afterwards)])
    (rejected,) = system.data_of(counted, "invocation_rejected")
    assert (rejected["node_id"], rejected["reason"]) == (calls[-1], "budget")
    assert [external.count(tag) for tag in calls[1:]] == [1, 1, 0]
    assert [allowed["rule"] for allowed in system.data_of(counted, "policy_allowed")] == ["few", "few"]

    tag = fresh("spent")
    spent = [
        {"id": f"s{n}", "tool": "poke_idempotent", "args": {"tag": f"{tag}-{n}", "delay_s": 0.2}, "depends_on": needs}
        for n, needs in enumerate(([], ["s0"]))
    ]
    system.wait_ended([summed := system.submit(*spent)])
    (rejected,) = system.data_of(summed, "invocation_rejected")
    assert (rejected["node_id"], rejected["reason"]) == ("s1", "budget")
    assert (external.count(f"{tag}-0"), external.count(f"{tag}-1")) == (1, 0)

    tag = fresh("slow")
    slow = [{"id": f"r{n}", "tool": "poke_opaque", "args": {"tag": f"{tag}-{n}"}} for n in range(2)]
    system.wait_ended([limited := system.submit(*slow)])
    times = [
        datetime.fromisoformat(event["time"]) for event in system.events(limited) if event["type"] == "policy_allowed"
    ]
    assert (external.count(f"{tag}-0"), external.count(f"{tag}-1")) == (1, 1)
    assert (times[1] - times[0]).total_seconds() >= 0.99


def test_a_stream_names_what_is_to_be_answered(system: System) -> None:
    job = system.submit(
        {"id": "which", "kind": "human", "form": FORM},
        {"id": "pay", "tool": "poke_irreversible", "args": {"tag": {"$ref": "which#/tag"}}},
    )
    form = wait_asked(system, job)
    assert respond(system, "bob", form, "approve", data={"tag": fresh("streamed")}).status_code == 200
    until(lambda: system.data_of(job, "approval_requested") != [], 30)
    call = wait_asked(system, job, after=form)
    assert respond(system, "bob", call, "reject").status_code == 200
    asked: list[str] = []
    with system.api.stream("GET", f"/jobs/{job}/events", headers={"accept": "text/event-stream"}) as answer:
        lines = (line.partition(": ") for line in answer.iter_lines())
        name = ""
        for field, _, text in lines:
            if field == "event":
                name = text
            elif field == "data" and name == "ecs":
                asked.append(json.loads(text)["data"]["form"]["id"])
            elif field == "":
                name = ""
    assert asked == [form, call]


def test_the_commands_show_requests_and_answer_them(system: System, external: ExternalServer) -> None:
    by_command, edited = fresh("by-command"), fresh("edited")
    job, request = ask(system, by_command)
    assert request in {one["request_id"] for one in json.loads(command(system, "approvals", "--json"))}
    assert f'"{by_command}"' in command(system, "approvals", request)
    assert "not_an_approver" in command(system, "approve", request, ends=1)
    reported = json.loads(
        command(system, "approve", request, "--as", "bob", "--edit", json.dumps({"tag": edited}), "--json")
    )
    new = reported["next_request_id"]
    assert command(system, "approve", new, "--as", "carol", "--comment", "fine").split() == ["approval_decided"]
    system.wait_ended([job])
    assert (external.count(by_command), external.count(edited)) == (0, 1)
    states = [line.split()[3] for line in command(system, "contracts", job).splitlines()[1:]]
    assert states == ["rejected", "completed"]
    assert "waiting → running" in command(system, "contracts", job, "--level", "transition")
    job, request = ask(system, by_command)
    assert command(system, "reject", request, "--as", "bob").split() == ["approval_decided"]
    system.wait_ended([job])
    assert external.count(by_command) == 0


def test_a_form_of_the_plan_gives_its_answer_to_the_next_step(system: System, external: ExternalServer) -> None:
    form = {"id": "which", "kind": "human", "form": FORM, "args": {"order": "o-1"}}
    act = {"id": "act", "tool": "poke_idempotent", "args": {"tag": {"$ref": "which#/tag"}}}
    job = system.submit(form, act)
    request = wait_asked(system, job)
    assert system.job(job)["status"] == "waiting"
    bad = respond(system, "bob", request, "approve", data={"hurry": True})
    assert (bad.status_code, bad.json()["error"]["details"]["field"]) == (400, "data.tag")
    assert respond(system, "bob", request, "edit", data={"tag": "x"}).status_code == 400
    answer = {"tag": f"by-form-{request}"}
    assert respond(system, "bob", request, "approve", data=answer).json()["event"] == "wait_completed"
    assert respond(system, "bob", request, "approve", data=answer).status_code == 200
    assert respond(system, "bob", request, "approve", data={"tag": "other"}).status_code == 409
    system.wait_ended([job])
    assert system.job(job)["status"] == "completed"
    assert external.count(answer["tag"]) == 1
    system.verified(job)
    (done,) = system.data_of(job, "wait_completed")
    assert (done["by"], done["payload"]) == ("bob", answer | {"hurry": False})


def test_an_answer_given_twice_at_the_same_time_is_no_conflict(system: System, external: ExternalServer) -> None:
    tag = fresh("twice")
    job, request = ask(system, tag)

    def commands() -> int:
        return sum(system.ends(Topic.JOBS_COMMANDS).values())

    with ThreadPoolExecutor(2) as bob:
        with system.asleep("ledger-0"):
            before = commands()
            reported = [bob.submit(respond, system, "bob", request, "approve") for _ in range(2)]
            until(lambda: commands() == before + 2, 20)
        assert [one.result().status_code for one in reported] == [200, 200]
    system.wait_ended([job])
    assert external.count(tag) == 1


def test_a_yes_in_the_log_is_enough_when_the_ledger_dies_before_it_grants(
    system: System, external: ExternalServer
) -> None:
    """The kill lies between the approval and the start: the next ledger finds the yes, and grants."""
    tag = fresh("kill")
    job, request = ask(system, tag)
    with system.asleep("executor-0"):
        assert respond(system, "bob", request, "approve").status_code == 200
        system.kill("ledger-0")
    system.wait_ended([job])
    assert external.count(tag) == 1
