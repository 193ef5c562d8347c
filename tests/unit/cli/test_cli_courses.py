"""`aetheris replay | effects | ledger | trace | why` on an exported stream: no network, the API's answers."""

import base64
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from aetheris.cli import streamfile
from aetheris.cli.app import app
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import logged_events
from aetheris.protocol.messages.events import Event
from aetheris.views.call_ledger import ledger_of
from aetheris.views.job_history import job_history
from tests.testkit import histories as h
from tests.testkit.job_histories import records, refunded


def exported(path: Path, *events: Event) -> str:
    """A file as `aetheris export` writes it."""
    lines = [as_json(record) for record in records(*events)]
    stream = streamfile.of_answer({"job_id": h.JOB, "keys": [], "records": lines})
    path.write_text("".join(f"{line}\n" for line in stream.lines()))
    return str(path)


def as_json(record: Record) -> dict[str, Any]:
    headers = [[name, b64(value)] for name, value in record.headers]
    return {"offset": record.offset, "key": b64(record.key or b""), "headers": headers, "value": b64(record.value)}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def call(*argv: str) -> Result:
    return CliRunner().invoke(app, list(argv))


@pytest.fixture
def stream(tmp_path: Path) -> str:
    return exported(tmp_path / "job.jsonl", *refunded())


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is tried fails the test."""

    def refuse(*_: Any) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)


def test_a_file_is_replayed_and_holds(stream: str) -> None:
    shown = call("replay", stream)
    assert (shown.exit_code, "as recorded" in shown.stdout) == (0, True)
    report = json.loads(call("replay", stream, "--json").stdout)
    assert (report["state"]["status"], report["differences"]) == ("completed", [])


def test_a_file_is_replayed_step_by_step_to_a_point(stream: str) -> None:
    report = json.loads(call("replay", stream, "--to", "8", "--step", "--json").stdout)
    assert [step["seq"] for step in report["steps"]] == list(range(1, 9))
    assert report["steps"][-1]["changes"] == {"pay": "running"}
    assert "pay: running" in call("replay", stream, "--to", "e7", "--step").stdout
    bad = call("replay", stream, "--to", "nowhere")
    assert (bad.exit_code, "unknown_point" in bad.stderr) == (2, True)


def test_a_stream_that_does_not_follow_from_itself_fails(tmp_path: Path) -> None:
    events = refunded()
    changed = events[5].model_copy(update={"output_hash": "0"})
    shown = call("replay", exported(tmp_path / "bad.jsonl", *events[:5], changed))
    assert (shown.exit_code, "output_differs: event e5 at offset 15" in shown.stdout) == (1, True)


def test_effects_and_their_reasons_come_from_the_file_alone(stream: str) -> None:
    effects = json.loads(call("effects", stream, "--json").stdout)
    assert effects == job_history(records(*refunded())).effects.to_json(h.JOB)
    assert "re_123" in call("effects", stream).stdout
    why = call("why", stream, "--external-id", "re_123")
    assert why.exit_code == 0
    for part in ("effect refund re_123", "approve by alice", "step pay", "lookup: find", "goal"):
        assert part in why.stdout
    found = json.loads(call("why", stream, "--tool", "refund", "--where", "args.amount > 100", "--json").stdout)
    assert found["facts"]["external_id"] == "re_123"


def test_the_ledger_comes_from_the_file_and_says_who_decided(stream: str) -> None:
    ledger = json.loads(call("ledger", stream, "--json").stdout)
    assert ledger == ledger_of(logged_events(records(*refunded())))
    lines = call("ledger", stream).stdout.splitlines()
    assert [line.split()[3:6] for line in lines[1:]] == [["lookup", "find", "success"], ["pay", "refund", "success"]]
    assert "re_123" in lines[2]


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("--external-id", "re_999"), 1),
        (("--where", "amount"), 2),
        (("--since", "soon"), 2),
    ],
)
def test_nothing_found_is_1_and_a_bad_question_2(stream: str, argv: tuple[str, ...], code: int) -> None:
    assert call("why", stream, *argv).exit_code == code


def test_all_effects_of_a_file_are_traced_back_and_nothing_is_asked_of_nothing(stream: str) -> None:
    reported = [json.loads(line) for line in call("why", stream, "--json").stdout.splitlines()]
    assert [one["facts"]["command_id"] for one in reported] == ["pay", "lookup"]
    assert call("why").exit_code == 2


def test_the_page_is_written_from_the_file(stream: str, tmp_path: Path) -> None:
    page = tmp_path / "trace.html"
    assert call("trace", stream, "--html", str(page)).exit_code == 0
    assert "re_123" in page.read_text()
    assert "<script" not in page.read_text()
    assert "leads_to" in call("trace", stream, "--json").stdout
    shown = call("trace", stream).stdout
    assert "plan revision 0" in shown
    assert shown.index("create_contract:") < shown.index("approve:") < shown.index("job_completed")


def test_a_stream_without_a_birth_is_bad_input(tmp_path: Path) -> None:
    path = exported(tmp_path / "unborn.jsonl", *refunded()[1:])
    assert [call(command, path).exit_code for command in ("replay", "effects", "ledger", "trace")] == [2] * 4


def test_a_file_is_replayed_where_there_is_no_network_at_all(stream: str) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare here")
    argv = [unshare, "-rn", sys.executable, "-m", "aetheris.cli", "replay", stream, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"]
