"""Recorded effects against the external system: reconciliation, and jobs that go on after a wait, on real parts."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import wait
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


@dataclass(frozen=True)
class FilesRig:
    """A system whose tools write files below `root`."""

    system: System
    root: Path

    def reconcile(self, job: str) -> dict[str, Any]:
        answer = self.system.api.post(f"/jobs/{job}/reconcile")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def signal(self, job: str, key: str) -> None:
        answer = self.system.signal(job, key)
        assert answer.status_code in (200, 202), answer.text

    def waiting_job(self, name: str, mode: str | None) -> str:
        """A job that has written `name`, and waits before it writes `name`.next, which builds on it."""
        after = {
            "id": "b",
            "tool": "write_file",
            "args": {"name": f"{name}.next", "text": {"$ref": "a#/etag"}},
            "depends_on": ["w"],
        }
        job = self.system.submit(write("a", name, "one"), wait("w", "go", "a"), after, **confirming(mode))
        self.system.wait_status(job, "waiting")
        return job


def confirming(mode: str | None) -> dict[str, Any]:
    """The request's option, or none."""
    return {"options": {"confirmation": mode}} if mode is not None else {}


def write(node: str, name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"id": node, "tool": "write_file", "args": {"name": name, "text": text, **more}}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[FilesRig]:
    folder = tmp_path_factory.mktemp("confirmation")
    root = folder / "files"
    root.mkdir()
    env = {"AETHERIS_TOOLS": "tests.testkit.file_tools", "FILES_ROOT": str(root)}
    with running_system(folder / "data", env) as system:
        yield FilesRig(system, root)


def test_what_a_sealed_job_did_is_compared_with_the_outside(rig: FilesRig) -> None:
    changed = fresh("r2")
    job = rig.system.submit(write("a", fresh("r1"), "one"), write("b", changed, "two"))
    rig.system.wait_ended([job])
    rig.system.wait_sealed(job)
    found = rig.reconcile(job)
    assert (found["ok"], found["asked"], found["confirmed"], found["unverifiable"]) == (True, 2, 2, 0)
    (rig.root / changed).write_text("somebody else's")
    found = rig.reconcile(job)
    assert (found["ok"], found["confirmed"], found["failed"]) == (False, 1, 1)
    (drift,) = [one for one in found["effects"] if one["event"] == "confirmation_failed"]
    assert (drift["node_id"], drift["reason"], set(drift["detail"])) == ("b", "drift", {"etag"})
    report = rig.system.report(job)
    assert (report["violations"], report["seal"]["ok"]) == ([], True)
    ran = subprocess.run(
        [sys.executable, "-m", "aetheris.cli", "reconcile", job, "--json", "--data", str(rig.system.data)],
        capture_output=True,
        text=True,
        env={**os.environ},
        check=False,
    )
    assert (ran.returncode, json.loads(ran.stdout)["failed"]) == (1, 1), ran.stderr


def test_a_later_change_takes_the_place_of_an_earlier_one(rig: FilesRig) -> None:
    name, etag = fresh("l1"), {"$ref": "a#/etag"}
    gone = {"id": "c", "tool": "remove_file", "args": {"name": name, "was": {"$ref": "b#/etag"}}}
    job = rig.system.submit(write("a", name, "one"), write("b", name, "two", was=etag), gone)
    rig.system.wait_ended([job])
    found = rig.reconcile(job)
    assert (found["ok"], [one["node_id"] for one in found["effects"]]) == (True, ["c"])
    assert rig.system.api.post("/jobs/nobody/reconcile").status_code == 404


def test_strict_fails_a_job_that_builds_on_what_is_gone(rig: FilesRig) -> None:
    name = fresh("s1")
    job = rig.waiting_job(name, None)
    (rig.root / name).unlink()
    rig.signal(job, "go")
    rig.system.wait_ended([job])
    view = rig.system.job(job)
    assert view["status"] == "failed"
    assert [one["reason"] for one in view["steps"] if one["node_id"] == "b"] == ["confirmation"]
    assert not (rig.root / f"{name}.next").exists()
    (body,) = rig.system.events(job, "confirmation_failed")
    assert (body["data"]["mode"], body["data"]["reason"]) == ("strict", "drift")


def test_what_is_as_it_was_lets_the_job_go_on(rig: FilesRig) -> None:
    name = fresh("c1")
    job = rig.waiting_job(name, None)
    rig.system.kill("ledger-0")
    rig.signal(job, "go")
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "completed"
    assert [one["data"]["mode"] for one in rig.system.events(job, "effect_confirmed")] == ["strict"]
    assert (rig.root / f"{name}.next").exists()


def test_warn_goes_on(rig: FilesRig) -> None:
    name = fresh("w1")
    job = rig.waiting_job(name, "warn")
    (rig.root / name).unlink()
    rig.signal(job, "go")
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "completed"
    assert len(rig.system.events(job, "confirmation_failed")) == 1


def test_a_human_lets_it_go_on_all_the_same(rig: FilesRig) -> None:
    name = fresh("h1")
    job = rig.waiting_job(name, "human_in_loop")
    (rig.root / name).unlink()
    rig.signal(job, "go")
    until(lambda: "confirm-" in str(rig.system.job(job).get("why")), 60)
    rig.system.kill("ledger-0")
    assert not (rig.root / f"{name}.next").exists()
    key = rig.system.job(job)["why"].split()[-1]
    before = rig.system.events(job)
    refused = rig.system.signal(job, key)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "missing_role")
    assert rig.system.events(job) == before
    assert rig.system.signal(job, key, by=rig.system.approver).status_code == 200
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "completed"
    assert rig.system.report(job)["violations"] == []


@pytest.mark.parametrize(
    ("mode", "status"), [("strict", "failed"), ("warn", "completed"), ("human_in_loop", "completed")]
)
def test_what_is_gone_once_all_services_were_is_met_by_the_jobs_option(rig: FilesRig, mode: str, status: str) -> None:
    """No step waits: all services are killed in the middle of one, and what the next builds on is deleted meanwhile."""
    name = fresh(f"k-{mode}")
    goes, next_name = f"{name}.go", f"{name}.next"
    on_its_way = {"id": "s", "tool": "await_file", "args": {"name": goes}, "depends_on": ["a"]}
    after = write("b", next_name, "two") | {"depends_on": ["a", "s"]}
    job = rig.system.submit(write("a", name, "one"), on_its_way, after, **confirming(mode))
    until(lambda: len(rig.system.events(job, "tool_invocation_started")) == 2, 60)
    with rig.system.all_killed():
        (rig.root / name).unlink()
        (rig.root / goes).touch()
    rig.system.wait_ready()
    if mode == "human_in_loop":
        until(lambda: "confirm-" in str(rig.system.job(job).get("why")), 60)
        assert not (rig.root / next_name).exists()
        rig.system.signal(job, rig.system.job(job)["why"].split()[-1], by=rig.system.approver).raise_for_status()
    rig.system.wait_status(job, status, 60)
    assert len(rig.system.events(job, "confirmation_failed")) == 1
    assert (rig.root / next_name).exists() is (mode != "strict")


def test_a_ledger_that_alone_was_gone_asks_nothing(rig: FilesRig) -> None:
    name = fresh("alone")
    goes = f"{name}.go"
    on_its_way = {"id": "s", "tool": "await_file", "args": {"name": goes}, "depends_on": ["a"]}
    after = write("b", f"{name}.next", "two") | {"depends_on": ["a", "s"]}
    job = rig.system.submit(write("a", name, "one"), on_its_way, after)
    until(lambda: len(rig.system.events(job, "tool_invocation_started")) == 2, 60)
    rig.system.kill("ledger-0")
    (rig.root / name).unlink()
    rig.system.wait_ready()
    (rig.root / goes).touch()
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "completed"
    assert rig.system.events(job, "confirmation_failed", "effect_confirmed") == []
