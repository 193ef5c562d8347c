"""`aetheris logs`: the services' lines by their times, of all jobs, or of one beside its events."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from aetheris.cli.app import app
from aetheris.cli.loglines import LogFile
from tests.testkit.scripted_gateway import ScriptedGateway

JOB, OTHER = "01935aaa-1111", "01935aaa-2222"


def line(time: str, event: str, **fields: Any) -> str:
    return json.dumps({**fields, "event": event, "level": "info", "timestamp": time, "service": "s"}) + "\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "executor-0.log").write_text(
        line("2026-01-01T00:00:02Z", "second", job_id=JOB, node_id="a") + "Traceback of a tool\n" + "{not json\n"
    )
    (logs / "executor-0.log.1").write_text(line("2026-01-01T00:00:00Z", "rotated", job_id=JOB))
    (logs / "ledger-0.log").write_text(line("2026-01-01T00:00:01Z", "first", job_id=OTHER))
    (logs / "supervisor.log").write_text("2026-01-01T00:00:03Z executor-0 started\n")
    (logs / "kafka.log").write_text("2026-01-01T00:00:01,000 INFO much\n")
    return tmp_path


def call(data: Path, *argv: str) -> Result:
    return CliRunner().invoke(app, ["logs", *argv, "--data", str(data)], catch_exceptions=False)


def said(shown: Result) -> list[str]:
    return [one.get("event") or one["text"] for one in map(json.loads, shown.stdout.splitlines())]


def test_all_lines_in_the_order_of_their_times_a_bare_one_with_the_one_before_it(data: Path) -> None:
    shown = said(call(data, "--json"))
    assert shown[:4] == ["rotated", "first", "second", "Traceback of a tool"]
    assert shown[-1].endswith("executor-0 started")
    assert said(call(data, "--json", "--lines", "1")) == shown[-1:]


def test_of_one_job_by_the_beginning_of_its_id(data: Path) -> None:
    assert said(call(data, "01935aaa-1", "--json")) == ["rotated", "second"]
    assert "no line names it" in call(data, "none-such").stderr
    ambiguous = call(data, "01935aaa")
    assert (ambiguous.exit_code, JOB in ambiguous.stderr, OTHER in ambiguous.stderr) == (2, True, True)


TRY = {"job_id": JOB, "node_id": "a", "invocation_id": "n1", "idempotency_key": "ab" * 32}
PAYLOAD = "what a tool was given"


def event(seq: int, service: str, kind: str, time: str, **reported: Any) -> dict[str, Any]:
    named = {"seq": seq, "id": f"e{seq}", "type": kind, "subject": "a", "offset": seq}
    return {**named, "time": f"2026-01-01T00:00:{time}+00:00", "source": f"aetheris/{service}", "data": reported}


STORY = [
    event(1, "planner", "job_created", "00.5", job_id=JOB, plan={"nodes": [PAYLOAD]}, goal=PAYLOAD),
    event(2, "tool_executor", "tool_invocation_started", "01.5", tool_name="refund", attempt_id=0, **TRY),
    event(3, "tool_executor", "tool_invocation_finished", "02.75", outcome="success", result={"x": PAYLOAD}, **TRY),
    event(4, "ledger", "approval_requested", "03.5", rule="large", form={"args": PAYLOAD}, **TRY),
    event(5, "ledger", "approval_decided", "04", decision="approve", approver="ann", comment=PAYLOAD, **TRY),
    event(6, "planner", "job_failed", "05", job_id=JOB, error="StepFailed: a"),
]


def told(data: Path, gateway: ScriptedGateway, *argv: str) -> list[dict[str, Any]]:
    gateway.answers["GET", "/jobs"] = (200, {"jobs": [], "cursor": None})
    gateway.answers["GET", f"/jobs/{JOB}/events"] = (200, STORY)
    return list(map(json.loads, call(data, JOB, "--json", *argv).stdout.splitlines()))


def test_of_one_job_its_events_lie_between_the_lines(data: Path, gateway: ScriptedGateway) -> None:
    shown = told(data, gateway)
    assert [one["event"] for one in shown] == [
        "rotated",
        "job_created",
        "tool_invocation_started",
        "second",
        "tool_invocation_finished",
        "approval_requested",
        "approval_decided",
        "job_failed",
    ]
    ended = shown[4]
    assert (ended["outcome"], ended["took_ms"], ended["trace_id"]) == ("success", 1250, "ab" * 16)
    assert (shown[5]["rule"], shown[6]["approver"], shown[7]["level"]) == ("large", "ann", "error")
    assert PAYLOAD not in json.dumps(shown), "neither arguments, results, goals nor comments"
    assert [one["event"] for one in told(data, gateway, "--part", "executor")] == [
        "rotated",
        "tool_invocation_started",
        "second",
        "tool_invocation_finished",
    ]


def test_where_no_gateway_runs_a_jobs_lines_are_all_there_is(data: Path, gateway: ScriptedGateway) -> None:
    shown = call(data, JOB, "--json")
    assert said(shown) == ["rotated", "second"]
    assert "without its events: there is no such job" in shown.stderr
    gateway.server_close()
    assert "without its events" in call(data, JOB).stderr


def test_of_one_part_and_of_servers_only_by_name(data: Path) -> None:
    assert said(call(data, "--part", "ledger", "--json")) == ["first"]
    assert "much" in call(data, "--part", "kafka").stdout
    assert "much" not in call(data).stdout


def test_a_folder_without_logs_is_bad_input(tmp_path: Path) -> None:
    assert call(tmp_path).exit_code == 2


def test_what_could_steer_a_terminal_is_not_printed(data: Path) -> None:
    (data / "logs" / "planner-0.log").write_text("\x1b]0;title\x07\n")
    assert "\x1b" not in call(data).stdout


def test_a_file_is_read_on_as_it_grows_by_whole_lines_and_anew_when_it_was_rotated(tmp_path: Path) -> None:
    path = tmp_path / "executor-0.log"
    path.write_text(line("t1", "one") + "half")
    file = LogFile(path)
    assert [one.fields["event"] for one in file.more()] == ["one"]
    with path.open("a") as more:
        more.write(" a line\n")
    assert [one.text for one in file.more()] == ["half a line"]
    path.replace(path.with_suffix(".log.1"))
    path.write_text(line("t2", "two"))
    assert [one.fields["event"] for one in file.more()] == ["two"]
