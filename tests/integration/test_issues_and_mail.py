"""Issues of a real tracker and mail of a real mail server, under kills; and what becomes of them afterwards."""

import json
import mailbox
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from aetheris.rigs.demo import refund
from aetheris.rigs.demo.external_systems import DemoExternalSystems
from aetheris.rigs.demo.gate import Gate
from aetheris.rigs.demo.servers import TRACKER_LOGIN
from aetheris.sdk.toolkits import smtp
from tests.testkit.attempts import cleared_by, fresh
from tests.testkit.collector import Collector, running_collector
from tests.testkit.external_server import until
from tests.testkit.rig import wait
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

PATIENCE_S = 60.0
FAILED = "aetheris.confirmations.failed"


@dataclass(frozen=True)
class TrackerRig:
    """A system with a mail server and an issue tracker, each behind a gate that can hold an answer back."""

    system: System
    external: DemoExternalSystems
    gates: dict[str, Gate]
    tracker: httpx.Client
    collector: Collector

    def submit(self, *nodes: dict[str, Any], mode: str = "strict") -> str:
        return self.system.submit(*nodes, options={"confirmation": mode})

    def listed(self, kind: str, **wanted: str) -> list[dict[str, Any]]:
        answer = self.tracker.get(f"/{kind}", params={**wanted, "@verbose": "2"}).raise_for_status()
        return answer.json()["data"]["collection"]

    def issues(self, title: str, **wanted: str) -> list[str]:
        return [one["id"] for one in self.listed("issue", title=title, **wanted)]

    def notes(self, job: str) -> int:
        """How many of the job's notes there are."""
        wanted = smtp.message_id(f"aetheris:{job}:note:0")
        return sum(one["messageid"] == wanted for one in self.listed("msg", **{"@fields": "messageid"}))

    def mails(self, order: str = "") -> list[Path]:
        new = self.external.places.maildir / "new"
        return [one for one in new.iterdir() if order in one.read_text()] if new.is_dir() else []

    def retire(self, issue: str) -> None:
        """Delete an issue as a person would: it is in no list any more."""
        etag = self.tracker.get(f"/issue/{issue}").headers["etag"]
        headers = {"If-Match": etag, "Content-Type": "application/json"}
        self.tracker.request("DELETE", f"/issue/{issue}", headers=headers, content="{}").raise_for_status()

    def killed_after(self, server: str, marker: bytes, there: Callable[[], bool]) -> Callable[[], None]:
        """Lie in wait for a call. Then: kill -9 the executor when the call has taken effect, its answer unheard."""
        gate = self.gates[server]
        gate.hold_after(marker)

        def kill() -> None:
            assert gate.wait_held(PATIENCE_S), f"no call with {marker!r}"
            until(there, PATIENCE_S)
            self.system.kill("executor-0")
            gate.open()

        return kill

    def reconcile(self, job: str) -> tuple[int, dict[str, Any]]:
        """The command: its exit code, and what it says."""
        argv = [sys.executable, "-m", "aetheris.cli", "reconcile", job, "--json", "--data", str(self.system.data)]
        ran = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ})
        return ran.returncode, json.loads(ran.stdout)

    def waiting(self, mode: str, name: str) -> tuple[str, str]:
        """(a job that has opened an issue, and waits before it opens another that refers to it; the issue)."""
        after = {"id": "b", "tool": "open_issue", "args": {"title": f"{name}-next"}, "depends_on": ["w", "a"]}
        job = self.submit(opening("a", f"{name}-first"), wait("w", "go", "a"), after, mode=mode)
        self.system.wait_status(job, "waiting", PATIENCE_S)
        (issue,) = self.issues(f"{name}-first")
        return job, issue

    def go(self, job: str, key: str = "go") -> None:
        answer = self.system.signal(job, key, by=self.system.approver)
        assert answer.status_code in (200, 202), answer.text


def opening(node: str, title: str) -> dict[str, Any]:
    return {"id": node, "tool": "open_issue", "args": {"title": title}}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[TrackerRig]:
    folder = tmp_path_factory.mktemp("issues")
    with ExitStack() as running:
        external = running.enter_context(DemoExternalSystems(folder / "outside"))
        collector = running.enter_context(running_collector())
        gates = {name: running.enter_context(Gate(external.ports[name])) for name in ("smtp", "tracker")}
        env = {
            **external.env,
            "DEMO_SMTP": f"127.0.0.1:{gates['smtp'].port}",
            "DEMO_TRACKER_URL": f"http://127.0.0.1:{gates['tracker'].port}",
            "AETHERIS_TOOLS": "aetheris.rigs.demo.tools,tests.testkit.tracker_tools",
            "AETHERIS_POLICY": str(refund.PLAN.with_name("policy.toml")),
            **collector.env,
        }
        url = external.places.tracker_url
        headers = {"X-Requested-With": "rest", "Origin": url}
        tracker = running.enter_context(
            httpx.Client(base_url=f"{url}/rest/data", auth=TRACKER_LOGIN, headers=headers, trust_env=False, timeout=60)
        )
        for gate in gates.values():
            running.enter_context(cleared_by(gate.open))
        system = running.enter_context(running_system(folder / "data", env))
        yield TrackerRig(system, external, gates, tracker, collector)


def test_each_is_there_once_whenever_the_executor_dies_and_what_is_deleted_is_drift(rig: TrackerRig) -> None:
    title, order = fresh("killed"), fresh("o-1")
    issue = {"$ref": "issue#/issue"}
    mail = {"to": "ada@example.org", "order_id": order, "amount": 100}
    kill = rig.killed_after("tracker", b"POST /rest/data/issue", lambda: len(rig.issues(title)) >= 1)
    job = rig.submit(
        opening("issue", title),
        {"id": "note", "tool": "write_note", "args": {"text": "a note"}, "depends_on": ["issue"]},
        {"id": "attached", "tool": "attach_note", "args": {"issue": issue, "note": {"$ref": "note#/note"}}},
        {"id": "closed", "tool": "close_issue", "args": {"issue": issue}, "depends_on": ["attached"]},
        {"id": "mail", "tool": "send_receipt", "args": mail, "depends_on": ["closed"]},
    )

    def attached() -> bool:
        return any(one["messages"] for one in rig.listed("issue", title=title, **{"@fields": "messages"}))

    for server, marker, there in (
        ("tracker", b"POST /rest/data/msg", lambda: rig.notes(job) >= 1),
        ("tracker", b'"@op":"add"', attached),
        ("tracker", b'"@op":"replace"', lambda: bool(rig.issues(title, status="resolved"))),
        ("smtp", b"\r\n.\r\n", lambda: bool(rig.mails(order))),
    ):
        kill()
        kill = rig.killed_after(server, marker, there)
    kill()
    rig.system.wait_ended([job], PATIENCE_S)
    assert rig.system.job(job)["status"] == "completed"
    settled = {one["node_id"]: one["via"] for one in rig.system.data_of(job, "tool_invocation_finished")}
    assert {settled[name] for name in ("issue", "note", "mail")} == {"probe"}
    (number,) = rig.issues(title)
    assert (rig.notes(job), len(rig.mails(order))) == (1, 1)

    rig.system.wait_sealed(job, PATIENCE_S)
    code, found = rig.reconcile(job)
    assert (code, found["asked"], found["confirmed"]) == (0, 3, 3), found
    rig.retire(number)
    for one in rig.mails():
        one.unlink()
    assert list(mailbox.Maildir(rig.external.places.maildir)) == []
    code, found = rig.reconcile(job)
    drifted = {one["node_id"]: one["detail"] for one in found["effects"] if one["event"] == "confirmation_failed"}
    assert (code, drifted) == (
        1,
        {"closed": {"issue": "is not there"}, "mail": {"mail": "is not in the mailbox"}},
    )
    assert rig.system.report(job)["violations"] == []


def test_a_job_that_goes_on_learns_that_its_issue_was_deleted(rig: TrackerRig) -> None:
    names = {mode: fresh(mode) for mode in ("strict", "warn", "human_in_loop")}
    jobs = {mode: rig.waiting(mode, name) for mode, name in names.items()}
    following = {mode: f"{name}-next" for mode, name in names.items()}
    for _, issue in jobs.values():
        rig.retire(issue)
    counted = rig.collector.value(FAILED) or 0
    strict, warn, human = (jobs[mode][0] for mode in ("strict", "warn", "human_in_loop"))

    for job in (strict, warn, human):
        rig.go(job)
    rig.system.wait_ended([strict, warn], PATIENCE_S)
    (step,) = [one for one in rig.system.job(strict)["steps"] if one["node_id"] == "b"]
    assert (rig.system.job(strict)["status"], step["reason"]) == ("failed", "confirmation")
    assert (rig.system.job(warn)["status"], len(rig.issues(following["warn"]))) == ("completed", 1)
    until(lambda: "confirm-" in str(rig.system.job(human).get("why")), PATIENCE_S)
    assert rig.issues(following["human_in_loop"]) == rig.issues(following["strict"]) == []
    until(lambda: (rig.collector.value(FAILED) or 0) >= counted + 3, PATIENCE_S)

    rig.go(human, rig.system.job(human)["why"].split()[-1])
    rig.system.wait_ended([human], PATIENCE_S)
    assert (rig.system.job(human)["status"], len(rig.issues(following["human_in_loop"]))) == ("completed", 1)
    for job in (strict, warn, human):
        (body,) = rig.system.data_of(job, "confirmation_failed")
        assert (body["reason"], body["detail"]) == ("drift", {"issue": "is not there"})
        assert rig.system.report(job)["violations"] == []
