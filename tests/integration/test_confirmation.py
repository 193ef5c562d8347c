"""Recorded effects against the outside, on the whole system: reconciliation, and jobs that go on after a wait."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.testkit.attempts import fresh
from tests.testkit.outside import until
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


@dataclass(frozen=True)
class World:
    system: System
    root: Path

    def submit(self, *nodes: dict[str, Any], mode: str | None = None) -> str:
        options = {"options": {"confirmation": mode}} if mode is not None else {}
        answer = self.system.api.post("/jobs", json={"plan": {"nodes": list(nodes)}, **options})
        assert answer.status_code == 202, answer.text
        return answer.json()["job_id"]

    def events(self, job: str, *types: str) -> list[dict[str, Any]]:
        found = self.system.api.get(f"/jobs/{job}/events").json()
        return [event for event in found if not types or event["type"] in types]

    def reconcile(self, job: str) -> dict[str, Any]:
        answer = self.system.api.post(f"/jobs/{job}/reconcile")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def signal(self, job: str, key: str) -> None:
        answer = self.signalled(job, key)
        assert answer.status_code in (200, 202), answer.text

    def signalled(self, job: str, key: str, headers: dict[str, str] | None = None) -> httpx.Response:
        return self.system.api.post(f"/jobs/{job}/signal", json={"correlation_key": key}, headers=headers)

    def waiting_job(self, name: str, mode: str | None) -> str:
        """A job that has written `name`, and waits before it writes `name`.next, which builds on it."""
        wait = {"id": "w", "kind": "wait", "wait": {"key": "go"}, "depends_on": ["a"]}
        after = {
            "id": "b",
            "tool": "write_file",
            "args": {"name": f"{name}.next", "text": {"$ref": "a#/etag"}},
            "depends_on": ["w"],
        }
        job = self.submit(write("a", name, "one"), wait, after, mode=mode)
        self.system.wait_status(job, "waiting")
        return job


def write(node: str, name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"id": node, "tool": "write_file", "args": {"name": name, "text": text, **more}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("confirmation")
    root = folder / "files"
    root.mkdir()
    env = {"AETHERIS_TOOLS": "tests.testkit.file_tools", "FILES_ROOT": str(root)}
    with running_system(folder / "data", env) as system:
        yield World(system, root)


def test_what_a_sealed_job_did_is_compared_with_the_outside(world: World) -> None:
    changed = fresh("r2")
    job = world.submit(write("a", fresh("r1"), "one"), write("b", changed, "two"))
    world.system.wait_ended([job])
    until(lambda: bool(world.events(job, "job_sealed")), 60)
    found = world.reconcile(job)
    assert (found["ok"], found["asked"], found["confirmed"], found["unverifiable"]) == (True, 2, 2, 0)
    (world.root / changed).write_text("somebody else's")
    found = world.reconcile(job)
    assert (found["ok"], found["confirmed"], found["failed"]) == (False, 1, 1)
    (drift,) = [one for one in found["effects"] if one["event"] == "confirmation_failed"]
    assert (drift["node_id"], drift["reason"], set(drift["detail"])) == ("b", "drift", {"etag"})
    report = world.system.report(job)
    assert (report["violations"], report["seal"]["ok"]) == ([], True)
    ran = subprocess.run(
        [sys.executable, "-m", "aetheris.cli", "reconcile", job, "--json", "--data", str(world.system.data)],
        capture_output=True,
        text=True,
        env={**os.environ},
        check=False,
    )
    assert (ran.returncode, json.loads(ran.stdout)["failed"]) == (1, 1), ran.stderr


def test_a_later_change_takes_the_place_of_an_earlier_one(world: World) -> None:
    name, etag = fresh("l1"), {"$ref": "a#/etag"}
    gone = {"id": "c", "tool": "remove_file", "args": {"name": name, "was": {"$ref": "b#/etag"}}}
    job = world.submit(write("a", name, "one"), write("b", name, "two", was=etag), gone)
    world.system.wait_ended([job])
    found = world.reconcile(job)
    assert (found["ok"], [one["node_id"] for one in found["effects"]]) == (True, ["c"])
    assert world.system.api.post("/jobs/nobody/reconcile").status_code == 404


def test_strict_fails_a_job_that_builds_on_what_is_gone(world: World) -> None:
    name = fresh("s1")
    job = world.waiting_job(name, None)
    (world.root / name).unlink()
    world.signal(job, "go")
    world.system.wait_ended([job])
    view = world.system.job(job)
    assert view["status"] == "failed"
    assert [one["reason"] for one in view["steps"] if one["node_id"] == "b"] == ["confirmation"]
    assert not (world.root / f"{name}.next").exists()
    (said,) = world.events(job, "confirmation_failed")
    assert (said["data"]["mode"], said["data"]["reason"]) == ("strict", "drift")


def test_what_is_as_it_was_lets_the_job_go_on(world: World) -> None:
    name = fresh("c1")
    job = world.waiting_job(name, None)
    world.system.kill("ledger-0")
    world.signal(job, "go")
    world.system.wait_ended([job])
    assert world.system.job(job)["status"] == "completed"
    assert [one["data"]["mode"] for one in world.events(job, "effect_confirmed")] == ["strict"]
    assert (world.root / f"{name}.next").exists()


def test_warn_goes_on(world: World) -> None:
    name = fresh("w1")
    job = world.waiting_job(name, "warn")
    (world.root / name).unlink()
    world.signal(job, "go")
    world.system.wait_ended([job])
    assert world.system.job(job)["status"] == "completed"
    assert len(world.events(job, "confirmation_failed")) == 1


def test_a_human_lets_it_go_on_all_the_same(world: World) -> None:
    name = fresh("h1")
    job = world.waiting_job(name, "human_in_loop")
    (world.root / name).unlink()
    world.signal(job, "go")
    until(lambda: "confirm-" in str(world.system.job(job).get("why")), 60)
    world.system.kill("ledger-0")
    assert not (world.root / f"{name}.next").exists()
    key = world.system.job(job)["why"].split()[-1]
    before = world.events(job)
    refused = world.signalled(job, key)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_an_approver")
    assert world.events(job) == before
    assert world.signalled(job, key, world.system.approver).status_code == 200
    world.system.wait_ended([job])
    assert world.system.job(job)["status"] == "completed"
    assert world.system.report(job)["violations"] == []


@pytest.mark.parametrize(
    ("mode", "status"), [("strict", "failed"), ("warn", "completed"), ("human_in_loop", "completed")]
)
def test_what_is_gone_once_all_services_were_is_met_by_the_jobs_option(world: World, mode: str, status: str) -> None:
    """No step waits: all services are killed in the middle of one, and what the next builds on is deleted meanwhile."""
    name = fresh(f"k-{mode}")
    goes, next_name = f"{name}.go", f"{name}.next"
    on_its_way = {"id": "s", "tool": "await_file", "args": {"name": goes}, "depends_on": ["a"]}
    after = write("b", next_name, "two") | {"depends_on": ["a", "s"]}
    job = world.submit(write("a", name, "one"), on_its_way, after, mode=mode)
    until(lambda: len(world.events(job, "tool_invocation_started")) == 2, 60)
    with world.system.all_killed():
        (world.root / name).unlink()
        (world.root / goes).touch()
    world.system.wait_ready()
    if mode == "human_in_loop":
        until(lambda: "confirm-" in str(world.system.job(job).get("why")), 60)
        assert not (world.root / next_name).exists()
        world.signalled(job, world.system.job(job)["why"].split()[-1], world.system.approver).raise_for_status()
    world.system.wait_status(job, status, 60)
    assert len(world.events(job, "confirmation_failed")) == 1
    assert (world.root / next_name).exists() is (mode != "strict")


def test_a_ledger_that_alone_was_gone_asks_nothing(world: World) -> None:
    name = fresh("alone")
    goes = f"{name}.go"
    on_its_way = {"id": "s", "tool": "await_file", "args": {"name": goes}, "depends_on": ["a"]}
    after = write("b", f"{name}.next", "two") | {"depends_on": ["a", "s"]}
    job = world.submit(write("a", name, "one"), on_its_way, after)
    until(lambda: len(world.events(job, "tool_invocation_started")) == 2, 60)
    world.system.kill("ledger-0")
    (world.root / name).unlink()
    world.system.wait_ready()
    (world.root / goes).touch()
    world.system.wait_ended([job])
    assert world.system.job(job)["status"] == "completed"
    assert world.events(job, "confirmation_failed", "effect_confirmed") == []
