"""The commands about jobs, against a stand-in gateway: what they send, print, and end with."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from aetheris.cli.app import app
from tests.testkit.scripted_gateway import ScriptedGateway

PLAN = {"nodes": [{"id": "a", "tool": "refund", "args": {"amount": 1}}]}
SUMMARY = {"job_id": "j1", "status": "running", "created_at": "t", "submitted_by": "me", "tenant": "default"}
PARKED = {"node_id": "a", "tool": "refund", "state": "waiting", "attempts": 1, "execution_id": "x1"}


def event(seq: int, kind: str, **data: Any) -> dict[str, Any]:
    return {"seq": seq, "id": f"e{seq}", "type": kind, "time": "t", "subject": "a", "offset": seq, "data": data}


TRY = {"node_id": "a", "invocation_id": "n1", "idempotency_key": "k"}
STORY = [
    event(1, "job_created", job_id="j1"),
    event(2, "tool_invocation_started", tool_name="refund", attempt_id=0, external_key="aetheris:j1:a:0", **TRY),
    event(3, "tool_invocation_finished", outcome="success", via="executor", external_id="re_7", **TRY),
]


@pytest.fixture
def plan(tmp_path: Path) -> str:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(PLAN))
    return str(path)


def call(*argv: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, argv, input=stdin, catch_exceptions=False)


def test_submit_sends_the_plan_and_prints_the_job(gateway: ScriptedGateway, plan: str) -> None:
    gateway.answers["POST", "/jobs"] = (202, {"job_id": "j1", "status": "submitted"})
    shown = call("submit", plan, "--idempotency-key", "once")
    assert (shown.exit_code, shown.stdout) == (0, "j1 submitted\n")
    assert gateway.sent() == {"plan": PLAN}
    headers = {name.lower(): value for name, value in gateway.asked[0][3].items()}
    assert (headers["idempotency-key"], headers["authorization"]) == ("once", "Bearer token-of-a-test")


@pytest.mark.parametrize(("status", "code"), [("completed", 0), ("failed", 1)])
def test_submit_waits_for_the_end(gateway: ScriptedGateway, plan: str, status: str, code: int) -> None:
    gateway.answers["POST", "/jobs"] = (202, {"job_id": "j1", "status": "running"})
    gateway.answers["GET", "/jobs/j1"] = (200, SUMMARY | {"status": status})
    shown = call("submit", plan, "--wait", "90")
    assert (shown.exit_code, shown.stdout) == (code, f"j1 {status}\n")
    waits = [headers.get("prefer") for _, _, _, headers in gateway.asked]
    assert waits[0] == "wait=90"
    assert len(waits) == 2
    assert call("submit", plan, "--wait", "0").exit_code == 1


def test_submit_sends_a_goal_with_what_its_model_may_do(gateway: ScriptedGateway, plan: str) -> None:
    gateway.answers["POST", "/jobs"] = (202, {"job_id": "j1", "status": "submitted"})
    shown = call("submit", "--goal", "pay ann", "--tool", "pay", "--tool", "look*", "--limit", "turns=3")
    assert (shown.exit_code, shown.stdout) == (0, "j1 submitted\n")
    assert gateway.sent() == {"goal": "pay ann", "tools": ["pay", "look*"], "limits": {"turns": 3}}
    gateway.asked.clear()
    call("submit", "--goal", "pay ann", "--max-tokens", "50", "--temperature", "0", "--seed", "0")
    assert gateway.sent() == {"goal": "pay ann", "tools": [], "max_tokens": 50, "temperature": 0.0, "seed": 0}
    for wrong in (
        (plan, "--goal", "pay ann"),
        (),
        (plan, "--tool", "pay"),
        (plan, "--seed", "0"),
        (plan, "--temperature", "0"),
        ("--goal", "g", "--temperature", "3"),
        ("--goal", "g", "--limit", "turns=many"),
    ):
        assert call("submit", *wrong).exit_code == 2


def test_a_plan_may_come_from_standard_input(gateway: ScriptedGateway) -> None:
    gateway.answers["POST", "/jobs"] = (202, {"job_id": "j1", "status": "submitted"})
    assert json.loads(call("submit", "-", "--json", stdin=json.dumps(PLAN)).stdout)["job_id"] == "j1"


@pytest.mark.parametrize(
    ("text", "named"),
    [("{", "line 1"), ('{"nodes":[],"nodes":[]}', "/nodes"), ("[]", "plan.json"), ('{"a":[1e999]}', "/a/0")],
)
def test_a_bad_plan_is_refused_before_anything_is_sent(
    gateway: ScriptedGateway, tmp_path: Path, text: str, named: str
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    for command in ("submit", "run"):
        shown = call(command, str(path))
        assert (shown.exit_code, shown.stdout) == (2, "")
        assert named in shown.stderr
        assert "plan.json" in shown.stderr
    assert gateway.asked == []


def test_a_file_that_cannot_be_read_is_bad_input(gateway: ScriptedGateway, tmp_path: Path) -> None:
    shown = call("submit", str(tmp_path / "none.json"))
    assert (shown.exit_code, "none.json" in shown.stderr) == (2, True)
    assert gateway.asked == []


@pytest.mark.parametrize(("status", "code"), [("completed", 0), ("failed", 1), ("cancelled", 1)])
def test_run_shows_each_step_and_ends_as_the_job_did(
    gateway: ScriptedGateway, plan: str, status: str, code: int
) -> None:
    gateway.answers["POST", "/jobs"] = (202, {"job_id": "j1", "status": "submitted"})
    gateway.answers["GET", "/jobs/j1"] = (200, {**SUMMARY, "status": status, "steps": [], "result": {"a": 1}})
    gateway.story = [*STORY, event(4, f"job_{status}", job_id="j1")]
    shown = call("run", plan, "--json")
    assert shown.exit_code == code
    assert json.loads(shown.stdout)["status"] == status
    lines = [line.split() for line in shown.stderr.splitlines()]
    assert ["a", "refund", "started", "attempt", "0", "aetheris:j1:a:0"] in lines
    assert ["a", "refund", "done", "attempt", "0", "re_7"] in lines


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [(400, "invalid_plan", 2), (401, "unauthorized", 2), (409, "idempotency_conflict", 1), (503, "deadline", 5)],
)
def test_a_refusal_ends_with_its_code(
    gateway: ScriptedGateway, plan: str, status: int, code: str, exit_code: int
) -> None:
    gateway.answers["POST", "/jobs"] = (status, {"error": {"code": code, "message": "no", "details": {"field": "f"}}})
    shown = call("submit", plan, "--json")
    assert shown.exit_code == exit_code
    assert json.loads(shown.stdout)["error"]["code"] == code


@pytest.mark.parametrize(
    "argv",
    [("job", "j9"), ("events", "j9"), ("events", "j9", "--follow"), ("verify", "j9"), ("cancel", "j9"),
     ("export", "j9", "--out", "-"), ("resolve", "j9", "--node", "a", "--happened", "--evidence", "seen"),
     ("cancel", "j9", "--node", "a")],
)  # fmt: skip
def test_an_unknown_job_is_exit_4(gateway: ScriptedGateway, argv: tuple[str, ...]) -> None:
    shown = call(*argv)
    assert (shown.exit_code, "unknown_job" in shown.stderr) == (4, True)
    assert len(gateway.asked) == 1


def test_nobody_there_is_exit_5(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plan: str) -> None:
    for name in ("AETHERIS_URL", "AETHERIS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert call("jobs", "--data", str(tmp_path)).exit_code == 5
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("AETHERIS_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AETHERIS_TOKEN", "t" * 8)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for argv in (("jobs",), ("submit", plan), ("job", "j1"), ("verify", "j1")):
        shown = call(*argv)
        assert (shown.exit_code, "aetheris up" in shown.stderr) == (5, True)


def test_an_id_that_is_none_is_bad_input_and_sends_nothing(gateway: ScriptedGateway) -> None:
    for command in ("job", "events", "cancel", "verify"):
        assert call(command, "a b").exit_code == 2
    assert gateway.asked == []


def test_job_says_why_it_waits_and_how_to_go_on(gateway: ScriptedGateway) -> None:
    why = "a is parked (nobody knows)"
    gateway.answers["GET", "/jobs/j1"] = (200, {**SUMMARY, "status": "waiting", "why": why, "steps": [PARKED]})
    shown = call("job", "j1")
    assert why in shown.stdout
    assert "aetheris resolve j1 --node a" in shown.stdout


def test_job_names_the_jobs_that_it_has_begun_and_the_one_that_began_it(gateway: ScriptedGateway) -> None:
    begun = {"job_id": "p1", "node_id": "workflow.ship", "replaces": False, "awaited_by": "p1"}
    children = [
        {"job_id": "c1", "node_id": "n", "workflow": "ship", "status": "failed", "continued_as": None},
        {"job_id": "c2", "node_id": "m", "workflow": "ship\x1b[2J", "detached": True},
    ]
    related = {"begun": begun, "children": children, "continued_as": "j2"}
    gateway.answers["GET", "/jobs/j1"] = (200, {**SUMMARY, "steps": [], **related})
    shown = call("job", "j1").stdout
    assert "begun by" in shown
    assert "job p1, by its call workflow.ship" in shown
    assert "job c1 (ship): failed" in shown
    assert "on its own" in shown
    assert "job j2" in shown
    assert "\x1b" not in shown
    gateway.answers["GET", "/jobs/j1"] = (200, {**SUMMARY, "steps": [], "children": children * 40})
    assert "30 more: --json shows them" in call("job", "j1").stdout


def test_what_came_from_outside_cannot_steer_the_terminal(gateway: ScriptedGateway) -> None:
    nasty = "re_\x1b[2J\x07[bold]x"
    step = {**PARKED, "state": "completed", "external_id": nasty}
    gateway.answers["GET", "/jobs/j1"] = (200, {**SUMMARY, "steps": [step]})
    shown = call("job", "j1")
    assert "\x1b" not in shown.stdout
    assert "[bold]x" in shown.stdout


def test_resolve_finds_the_contract_and_sends_the_verdict(gateway: ScriptedGateway) -> None:
    gateway.answers["GET", "/jobs/j1"] = (200, {**SUMMARY, "steps": [PARKED]})
    answer = {"job_id": "j1", "event": "tool_invocation_finished"}
    gateway.answers["POST", "/jobs/j1/contracts/x1/resolve"] = (200, answer)
    argv = ("resolve", "j1", "--node", "a", "--happened", "--result", '{"id": 7}', "--evidence", "the bank's list")
    shown = call(*argv)
    assert (shown.exit_code, shown.stdout) == (0, "tool_invocation_finished\n")
    assert gateway.sent() == {"verdict": "happened", "evidence": "the bank's list", "result": {"id": 7}}


@pytest.mark.parametrize(
    "more",
    [(), ("--happened", "--retry"), ("--retry", "--result", "1"), ("--happened", "--result", '{"a":1,"a":2}')],
)
def test_resolve_sends_nothing_that_is_not_one_clear_verdict(gateway: ScriptedGateway, more: tuple[str, ...]) -> None:
    assert call("resolve", "j1", "--node", "a", "--evidence", "e", *more).exit_code == 2
    assert gateway.asked == []


def test_cancel_of_a_step_names_its_contract(gateway: ScriptedGateway) -> None:
    gateway.answers["GET", "/jobs/j1"] = (200, {**SUMMARY, "steps": [PARKED]})
    answer = {"job_id": "j1", "event": "invocation_cancel_requested"}
    gateway.answers["POST", "/jobs/j1/contracts/x1/cancel"] = (200, answer)
    shown = call("cancel", "j1", "--node", "a", "--reason", "enough")
    assert (shown.exit_code, shown.stdout) == (0, "invocation_cancel_requested\n")
    assert gateway.sent() == {"reason": "enough"}


@pytest.mark.parametrize(("more", "asked"), [(("--node", "a", "--compensate"), 0), (("--node", "b"), 1)])
def test_cancel_of_a_step_that_is_none_sends_nothing(
    gateway: ScriptedGateway, more: tuple[str, ...], asked: int
) -> None:
    gateway.answers["GET", "/jobs/j1"] = (200, {**SUMMARY, "steps": [PARKED]})
    assert call("cancel", "j1", *more).exit_code == 2
    assert [method for method, *_ in gateway.asked] == ["GET"] * asked


def test_events_follow_prints_a_line_for_each_until_the_seal(gateway: ScriptedGateway) -> None:
    gateway.story = [*STORY, event(4, "job_completed"), event(5, "job_sealed")]
    shown = call("events", "j1", "--follow", "--json")
    assert [json.loads(line)["seq"] for line in shown.stdout.splitlines()] == [1, 2, 3, 4, 5]


def test_the_list_says_who_paused_a_job_and_why(gateway: ScriptedGateway) -> None:
    pauses = ({"number": 1, "by": "ann", "reason": "look"}, {"number": 2, "by": "bob", "reason": None})
    rows = [SUMMARY | {"job_id": f"j{pause['number']}", "status": "paused", "paused": pause} for pause in pauses]
    gateway.answers["GET", "/jobs"] = (200, {"jobs": [*rows, SUMMARY], "cursor": None})
    shown = call("jobs").stdout
    assert "paused by ann: look" in shown
    assert "paused by bob " in shown


def test_jobs_follows_the_pages(gateway: ScriptedGateway) -> None:
    gateway.answers["GET", "/jobs"] = (200, {"jobs": [SUMMARY], "cursor": "more"})
    shown = call("jobs", "--limit", "3", "--json")
    assert len(json.loads(shown.stdout)) == 3


def test_a_status_that_no_job_can_have_is_the_gateway_s_to_refuse(gateway: ScriptedGateway) -> None:
    refused = {"error": {"code": "bad_request", "message": "status: must be one of …", "details": {"field": "status"}}}
    gateway.answers["GET", "/jobs"] = (400, refused)
    shown = call("jobs", "--status", "bogus")
    assert (shown.exit_code, "must be one of" in shown.stderr) == (2, True)


LISTED = ("01935aaa-1111-7000-8000-000000000001", "01935aaa-2222-7000-8000-000000000002")


def listed(gateway: ScriptedGateway, *jobs: str) -> None:
    page = {"jobs": [SUMMARY | {"job_id": job} for job in jobs], "cursor": None}
    gateway.answers["GET", "/jobs"] = (200, page)
    for job in jobs:
        gateway.answers["GET", f"/jobs/{job}"] = (200, SUMMARY | {"job_id": job})


def test_the_beginning_of_an_id_will_do(gateway: ScriptedGateway) -> None:
    listed(gateway, *LISTED)
    shown = call("job", "01935aaa-2", "--json")
    assert (shown.exit_code, json.loads(shown.stdout)["job_id"]) == (0, LISTED[1])


def test_where_several_jobs_begin_so_they_are_named_and_nothing_is_done(gateway: ScriptedGateway) -> None:
    listed(gateway, *LISTED)
    shown = call("cancel", "01935aaa")
    assert (shown.exit_code, [one in shown.stderr for one in LISTED]) == (2, [True, True])
    assert {method for method, *_ in gateway.asked} == {"GET"}


@pytest.mark.parametrize("given", [LISTED[0], "019", "none-such"])
def test_a_whole_id_is_not_looked_for_and_what_begins_no_job_is_refused(gateway: ScriptedGateway, given: str) -> None:
    listed(gateway, LISTED[1])
    assert call("job", given).exit_code == 4
    assert ("/jobs" in [path for _, path, *_ in gateway.asked]) is (given == "none-such")


def asking(gateway: ScriptedGateway, *nodes: str, status: str = "running") -> None:
    steps = [PARKED | {"node_id": node, "request_id": f"{LISTED[0]}:{node}"} for node in nodes]
    gateway.answers["GET", f"/jobs/{LISTED[0]}"] = (
        200,
        SUMMARY | {"job_id": LISTED[0], "status": status, "steps": steps},
    )


def test_a_job_that_asks_one_thing_is_approved_by_its_own_id(gateway: ScriptedGateway) -> None:
    listed(gateway, LISTED[0])
    asking(gateway, "a")
    answer = {"request_id": f"{LISTED[0]}:a", "action": "approve", "event": "approval_decided"}
    gateway.answers["POST", "/ecs/respond"] = (200, answer)
    assert call("approve", "01935aaa").exit_code == 0
    assert gateway.sent()["request_id"] == f"{LISTED[0]}:a"


@pytest.mark.parametrize(("nodes", "code"), [((), 1), (("a", "b"), 2)])
def test_a_job_that_asks_nothing_or_much_is_not_approved(
    gateway: ScriptedGateway, nodes: tuple[str, ...], code: int
) -> None:
    asking(gateway, *nodes, status="running" if nodes else "completed")
    shown = call("reject", LISTED[0])
    assert (shown.exit_code, all(f"{LISTED[0]}:{node}" in shown.stderr for node in nodes)) == (code, True)
    assert {method for method, *_ in gateway.asked} == {"GET"}


def test_a_request_of_another_job_than_was_asked_for_is_not_approved(gateway: ScriptedGateway) -> None:
    steps = [PARKED | {"node_id": "a", "request_id": f"{LISTED[1]}:a"}]
    gateway.answers["GET", f"/jobs/{LISTED[0]}"] = (
        200,
        SUMMARY | {"job_id": LISTED[0], "status": "running", "steps": steps},
    )
    shown = call("approve", LISTED[0])
    assert (shown.exit_code, "a request of another job" in shown.stderr) == (1, True)
    assert {method for method, *_ in gateway.asked} == {"GET"}


def test_a_result_is_the_job_s_or_a_step_s(gateway: ScriptedGateway) -> None:
    gateway.answers["GET", "/jobs/j1"] = (200, SUMMARY | {"status": "completed", "result": {"a": {"v": 1}}})
    contract = {
        "execution_id": "x",
        "node_id": "a",
        "action_type": "tool",
        "outcome": "success",
        "has_effect": "confirmed",
    }
    done, open_ = (
        contract | {"status": "completed", "result": {"v": 1}},
        contract | {"node_id": "b", "status": "running"},
    )
    gateway.answers["GET", "/jobs/j1/contracts"] = (200, {"contracts": [done, open_]})
    assert json.loads(call("result", "j1").stdout) == {"a": {"v": 1}}
    assert json.loads(call("result", "j1", "a").stdout) == {"v": 1}
    assert (call("result", "j1", "b").exit_code, call("result", "j1", "c").exit_code) == (1, 2)


def test_a_job_that_has_not_completed_has_no_result_and_says_why(gateway: ScriptedGateway) -> None:
    gateway.answers["GET", "/jobs/j1"] = (200, SUMMARY | {"status": "waiting", "why": "a waits for approval"})
    shown = call("result", "j1")
    assert (shown.exit_code, "a waits for approval" in shown.stderr) == (1, True)


@pytest.mark.parametrize(
    ("code", "hint"),
    [("unknown_job", "`aetheris jobs` lists them."), ("unknown_worker", "`aetheris workers`"), ("unknown_subject", "")],
)
def test_what_is_not_there_is_told_with_what_lists_such(gateway: ScriptedGateway, code: str, hint: str) -> None:
    told = {"error": {"code": code, "message": "there is no such thing", "details": {}}}
    gateway.answers["POST", "/subjects/erase"] = (404, told)
    shown = call("erase", "--subject", "c-17")
    assert (shown.exit_code, hint in shown.stderr, "lists them" in shown.stderr) == (4, True, hint != "")
