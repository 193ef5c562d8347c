"""`aetheris demo`: one of each, whatever is killed or lost, and nothing left running (docs/demo.md)."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aetheris.cli import streamfile
from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.plan import State
from aetheris.proofs import Violation
from aetheris.rigs.demo import approve, late, refund, unknown
from aetheris.rigs.demo.external_systems import EffectCounts
from aetheris.rigs.demo.gate import Gate
from aetheris.rigs.demo.kills import Kills
from aetheris.rigs.demo.paid import payment_of, tag_of
from aetheris.rigs.demo.refund import ONCE, TWICE, Proof, RefundOutcome
from aetheris.rigs.demo.tamper import judge
from tests.testkit.external_server import LOG, logged, until

PROVEN = Proof(online_ok=True, offline_ok=True, tampered_ok=False, complaint=Violation(1, "rule", "event", 1, "why"))
PAID = tag_of(approve.PAYEE, approve.CHANGED)
APPROVED = approve.ApproveOutcome(403, 403, 409, 409, (PAID,), verified=True)
ONCE_PAID = late.Paid(1, "probe", ("not_found", "found"), verified=True)
SETTLED = unknown.UnknownOutcome(
    unknown.UnknownCounts(2, 2),
    unknown.UnknownCounts(1, 1),
    "probe",
    "human",
    waited=True,
    verified=True,
    late=unknown.Late(2, ONCE_PAID),
)
GOOD = RefundOutcome(naive=TWICE, aetheris=ONCE, kills=Kills(8, 1, 1, [1.0]), proof=PROVEN)


@pytest.mark.real
@pytest.mark.timeout(400)
def test_the_demo_keeps_its_promise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refund.run(tmp_path, keep=False) == 0
    reported = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line in (
        "refunds at the payment server 2 1",
        "mails in the mailbox 2 1",
        "issues in the tracker 2 1",
        "kill -9 3 × agent 8 × executor, 1 × ledger",
        "FLUSHALL 1",
        "verify nothing to verify holds",
        "verify, one byte changed fails, names the event",
        "As promised.",
    ):
        assert line in reported
    until(lambda: running_with(tmp_path) == [], 40)
    assert_one_byte_differs(tmp_path / "demo")


@pytest.mark.real
@pytest.mark.timeout(300)
def test_the_payout_that_waits_for_a_human_is_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert approve.run(tmp_path, keep=False) == 0
    reported = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line in (
        "the submitter approves himself 403 403",
        "who changed the call approves it 403 403",
        "a stale approval of 5000 409 409",
        "another answer, afterwards 409 409",
        f"payouts in the bank's book {PAID} {PAID}",
        "verify holds holds",
        "As promised.",
    ):
        assert line in reported
    (book,) = (tmp_path / "demo").glob(f"bank-*/{LOG}")
    assert [payout["tag"] for payout in logged(book)] == [PAID]
    until(lambda: running_with(tmp_path) == [], 40)


@pytest.mark.real
@pytest.mark.timeout(300)
def test_what_nobody_heard_of_is_settled_by_evidence_or_by_a_human(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert unknown.run(tmp_path, keep=False) == 0
    reported = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line in (
        "mails in the mailbox 2 1",
        "calls in the webhook's book 2 1",
        "payments in the bank's book 2 1",
        "the payment was settled by trying again probe (not_found, found)",
        "the mail was settled by trying again probe",
        "the webhook's call was settled by trying again human",
        "verify nothing to verify holds",
        "As promised.",
    ):
        assert line in reported
    assert len(list((tmp_path / "demo" / "maildir" / "new").iterdir())) == 3
    assert [call["tag"] for call in logged(tmp_path / "demo" / "webhook" / LOG)].count(unknown.TEXT) == 1
    paid = [payment["tag"] for payment in logged(tmp_path / "demo" / "bank" / LOG)]
    assert sorted(paid) == [payment_of(late.NAIVE_ORDER)] * 2 + [payment_of(late.ORDER)]
    until(lambda: running_with(tmp_path) == [], 40)


def assert_one_byte_differs(folder: Path) -> None:
    """The files that it leaves are what it says they are."""
    exported, tampered = (streamfile.read(folder / name) for name in ("exported.jsonl", "tampered.jsonl"))
    pairs = zip(exported.raw(), tampered.raw(), strict=True)
    differing = [(one, other) for one, other in pairs if one != other]
    assert len(differing) == 1
    one, other = differing[0]
    assert replace(one, value=other.value) == other
    assert sum(a != b for a, b in zip(one.value, other.value, strict=True)) == 1
    assert judge(exported).ok
    report = judge(tampered)
    assert not report.ok
    assert one.header("ce_id").decode() in {found.event_id for found in (*report.violations, *report.unproven)}


@pytest.mark.real
@pytest.mark.timeout(200)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_running(tmp_path: Path, how: signal.Signals) -> None:
    argv = [sys.executable, "-m", "aetheris.cli", "demo", "refund", "--data", str(tmp_path)]
    with (tmp_path / "told").open("wb") as reported:
        demo = subprocess.Popen(argv, stdout=reported, stderr=reported)
    try:
        until(lambda: runs_kafka(tmp_path), 120)
        demo.send_signal(how)
        assert demo.wait(60) != 0
    finally:
        demo.kill()
        demo.wait()
        if lifecycle.supervisor_pid(tmp_path) is not None:
            lifecycle.down(tmp_path)
            pytest.fail("the system was left running")
    until(lambda: running_with(tmp_path) == [], 40)


def runs_kafka(data: Path) -> bool:
    state = State.load(data)
    return state is not None and state.parts["kafka"].pid is not None


def running_with(folder: Path) -> list[str]:
    """The commands of live processes that name the folder."""
    commands = [read(process / "cmdline") for process in Path("/proc").iterdir() if process.name.isdecimal()]
    return [command for command in commands if str(folder) in command]


def read(path: Path) -> str:
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@pytest.mark.parametrize(
    "off",
    [
        replace(GOOD, aetheris=EffectCounts(2, 1, 1)),
        replace(GOOD, aetheris=EffectCounts(1, 1, 0)),
        replace(GOOD, naive=EffectCounts(1, 2, 2)),
        replace(GOOD, proof=replace(PROVEN, online_ok=False)),
        replace(GOOD, proof=replace(PROVEN, offline_ok=False)),
        replace(GOOD, proof=replace(PROVEN, tampered_ok=True)),
        replace(GOOD, proof=replace(PROVEN, complaint=None)),
    ],
)
def test_whatever_is_off_ends_it_with_1(off: RefundOutcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refund, "_play", lambda *_args, **_more: GOOD)
    assert refund.run(tmp_path, keep=False) == 0
    monkeypatch.setattr(refund, "_play", lambda *_args, **_more: off)
    assert refund.run(tmp_path, keep=False) == 1


@pytest.mark.parametrize(
    "off",
    [
        replace(APPROVED, own_approval=200),
        replace(APPROVED, own_edit=200),
        replace(APPROVED, stale_approval=200),
        replace(APPROVED, replayed_approval=200),
        replace(APPROVED, payouts=(PAID, PAID)),
        replace(APPROVED, payouts=(tag_of(approve.PAYEE, approve.ASKED),)),
        replace(APPROVED, verified=False),
    ],
)
def test_so_it_does_where_a_human_is_asked(
    off: approve.ApproveOutcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approve, "_play", lambda *_args, **_more: APPROVED)
    assert approve.run(tmp_path, keep=False) == 0
    monkeypatch.setattr(approve, "_play", lambda *_args, **_more: off)
    assert approve.run(tmp_path, keep=False) == 1


@pytest.mark.parametrize(
    "off",
    [
        replace(SETTLED, naive=unknown.UnknownCounts(1, 2)),
        replace(SETTLED, aetheris=unknown.UnknownCounts(2, 1)),
        replace(SETTLED, aetheris=unknown.UnknownCounts(1, 0)),
        replace(SETTLED, mail_by="executor"),
        replace(SETTLED, call_by="probe"),
        replace(SETTLED, waited=False),
        replace(SETTLED, verified=False),
        replace(SETTLED, late=unknown.Late(1, ONCE_PAID)),
        replace(SETTLED, late=unknown.Late(2, replace(ONCE_PAID, payments=2))),
        replace(SETTLED, late=unknown.Late(2, replace(ONCE_PAID, by="executor"))),
        replace(SETTLED, late=unknown.Late(2, replace(ONCE_PAID, answers=("found",)))),
        replace(SETTLED, late=unknown.Late(2, replace(ONCE_PAID, verified=False))),
    ],
)
def test_so_it_does_where_links_are_lost(
    off: unknown.UnknownOutcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unknown, "_play", lambda *_args, **_more: SETTLED)
    assert unknown.run(tmp_path, keep=False) == 0
    monkeypatch.setattr(unknown, "_play", lambda *_args, **_more: off)
    assert unknown.run(tmp_path, keep=False) == 1


def test_a_folder_in_use_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lifecycle, "supervisor_pid", lambda _data: os.getpid())
    assert refund.run(tmp_path, keep=False) == 1
    assert "aetheris down --data" in capsys.readouterr().out


def test_a_gate_keeps_a_request_back_for_ever() -> None:
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=take_all, args=(server, received.append), daemon=True).start()
        with Gate(server.getsockname()[1]) as gate:
            gate.hold_before(b"POST /pay")
            with socket.create_connection(("127.0.0.1", gate.port)) as client:
                client.sendall(b"GET /look\n")
                until(lambda: b"".join(received) == b"GET /look\n", 40)
                client.sendall(b"POST /p")
                until(lambda: b"".join(received).endswith(b"POST /p"), 40)
                client.sendall(b"ay HTTP/1.1\n")
                assert gate.wait_held(10)
                gate.open()
                assert client.recv(1) == b""
            with socket.create_connection(("127.0.0.1", gate.port)) as client:
                client.sendall(b"POST /pay now\n")
                until(lambda: b"".join(received).endswith(b"now\n"), 40)
    assert b"".join(received) == b"GET /look\nPOST /pPOST /pay now\n"


def take_all(server: socket.socket, receive: Callable[[bytes], None]) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            while chunk := connection.recv(1024):
                receive(chunk)


@pytest.mark.real
@pytest.mark.timeout(60)
def test_what_is_killed_restarts_without_growing_pauses(tmp_path: Path) -> None:
    """kill -9 says nothing of a process; one that exits by itself is waited for longer each time."""
    from aetheris.cli.embedded.forks import Template
    from aetheris.cli.embedded.plan import PartState, ProcessSpec
    from aetheris.cli.embedded.supervisor import Child

    child = Child(
        ProcessSpec("sleeper", "service", ("sleep", "60"), "http", "0"), tmp_path, PartState("sleeper"), Template()
    )
    for _ in range(4):
        child.start()
        assert child.state.pid is not None
        os.kill(child.state.pid, signal.SIGKILL)
        until(child.reap, 40)
        assert child.due is not None
        assert child.due - time.monotonic() <= 0.1
