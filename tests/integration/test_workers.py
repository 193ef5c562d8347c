"""Attacks on ends of workers, on a real Kafka: two of one name, threads and children that act late, people's words."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.ports import free_port
from aetheris.cli.embedded.processes import spawn
from aetheris.cli.embedded.services import with_counts
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.workers import HUMAN
from aetheris.protocol.messages.commands import Ended, WorkerEntry
from aetheris.runtime.process.installation import installation
from tests.testkit.outside import Outside, running_outside, until
from tests.testkit.services import asked
from tests.testkit.system import REPOSITORY, System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 90.0
AGAIN = 75
"""Another start makes sense: whoever stands in its way may be gone by then."""
TOOLS = "tests.testkit.outside_tools,tests.testkit.worker_tools"


@dataclass(frozen=True)
class Executor:
    """A process of its own, and where its log is."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int

    def ready(self) -> bool:
        return asked(self.port, "/readyz")[0] == 200

    def unready(self) -> str:
        return str(asked(self.port, "/readyz")[1].get("unready", {}).get("worker", ""))

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(PATIENCE_S)


@dataclass(frozen=True)
class World:
    """Everything but executors: tests start their own."""

    system: System
    outside: Outside
    folder: Path

    @contextmanager
    def executor(self, folder: str, name: str | None = None, **env: str) -> Generator[Executor]:
        port, data = free_port(), self.folder / folder
        log = self.folder / f"{folder}-{port}.log"
        given = {
            "AETHERIS_KAFKA": self.system.state().kafka,
            "AETHERIS_REDIS": self.system.state().redis,
            "AETHERIS_DATA": str(data),
            "AETHERIS_DEV": "1",
            "AETHERIS_TOOLS": TOOLS,
            "AETHERIS_TOOL_DRAIN_S": "1",
            "AETHERIS_HEALTH_PORT": str(port),
            "PYTHONPATH": str(REPOSITORY),
            "OUTLIVING": str(self.folder),
            **self.outside.env,
            **env,
        }
        kept = {key: value for key, value in os.environ.items() if not key.startswith("AETHERIS_")}
        named = {"AETHERIS_WORKER_ID": name} if name is not None else {}
        process = spawn((sys.executable, "-m", "aetheris.tool_executor"), log=log, env=kept | given | named)
        try:
            yield Executor(process, log, port)
        finally:
            process.kill()
            process.wait()

    def call(self, tool: str, tag: str) -> str:
        args = {"tag": tag, "hold": tag} if tool.startswith("poke") else {"tag": tag}
        return self.system.submit({"id": "a", "tool": tool, "args": args})

    def begun(self, tag: str) -> int:
        """The process of a call that outlives its executor, once it has begun."""
        file = self.folder / f"{tag}.begun"
        until(lambda: file.exists() and file.read_text() != "", PATIENCE_S)
        return int(file.read_text())

    def let_go(self, tag: str) -> None:
        (self.folder / f"{tag}.go").touch()

    def events(self, job: str, kind: str) -> list[dict[str, Any]]:
        return [one["data"] for one in self.system.api.get(f"/jobs/{job}/events").json() if one["type"] == kind]

    def worker(self, name: str) -> dict[str, Any]:
        return self.system.api.get(f"/workers/{name}").json()

    def end(self, path: str, json: dict[str, Any]) -> httpx.Response:
        """By an operator, who submits nothing."""
        return self.system.api.post(path, json=json, headers=self.system.approver)

    def lives(self, name: str) -> str | None:
        """The incarnation that lives under a name."""
        return self.worker(name).get("live")

    def ended_once(self, job: str, tag: str) -> None:
        self.system.wait_ended([job], PATIENCE_S)
        assert self.system.job(job)["status"] == "completed"
        assert self.outside.count(tag) == 1
        self.system.verified(job)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("workers")
    env = {"AETHERIS_TOOLS": TOOLS, "AETHERIS_LEASE_TTL_S": "2", "AETHERIS_END_WAIT_S": "20"}
    with (
        running_outside(folder / "outside") as outside,
        running_system(folder / "data", env | outside.env, executor=0) as system,
    ):
        yield World(system, outside, folder)


def fresh() -> str:
    return f"w-{uuid4().hex[:8]}"


def test_a_second_host_of_the_same_name_is_refused_and_says_nothing(world: World) -> None:
    name, tag = fresh(), fresh()
    world.outside.hold(tag)
    with world.executor(f"{name}-one", name) as first:
        until(first.ready, PATIENCE_S)
        lives = world.lives(name)
        job = world.call("poke_probeable", tag)
        world.outside.wait_for(1, tag, PATIENCE_S)
        with world.executor(f"{name}-two", name) as second:
            assert second.ended() == AGAIN
            assert "worker_id_taken" in second.log.read_text()
            assert "aetheris workers end" in second.log.read_text()
        assert (world.lives(name), world.worker(name)["ended"]) == (lives, [])
        assert first.ready(), "its partitions are its own"
        (world.outside.folder / tag).unlink()
        world.ended_once(job, tag)
    assert world.events(job, "worker_ended") == []


def test_two_hosts_without_a_name_have_two(world: World) -> None:
    with world.executor("host-one") as first, world.executor("host-two") as second:
        until(lambda: first.ready() and second.ready(), PATIENCE_S)
        ids = [installation(world.folder / host) for host in ("host-one", "host-two")]
        lives = [world.lives(f"worker-0.{one}") for one in ids]
        assert None not in lives
        assert lives[0] != lives[1]
        job, tag = None, fresh()
        for number in range(8):  # of every partition
            job = world.system.submit({"id": "a", "tool": "poke_probeable", "args": {"tag": f"{tag}-{number}"}})
            world.ended_once(job, f"{tag}-{number}")


def test_its_successor_on_the_same_folder_ends_it_and_nobody_else(world: World) -> None:
    name, tag = fresh(), fresh()
    world.outside.hold(tag)
    with world.executor(name, name) as first:
        until(first.ready, PATIENCE_S)
        lives = world.lives(name)
        job = world.call("poke_probeable", tag)
        world.outside.wait_for(1, tag, PATIENCE_S)
        assert [(one["node_id"], one["incarnation"]) for one in world.worker(name)["open"]] == [("a", lives)]
        first.process.kill()
        with world.executor(name, name):
            world.ended_once(job, tag)
    (end,) = world.events(job, "worker_ended")
    assert (end["worker_id"], end["incarnation"], end["how"]) == (name, lives, "lock")


def test_a_thread_that_acts_after_the_drain_keeps_the_lock(world: World) -> None:
    name, tag = fresh(), fresh()
    with world.executor(name, name) as first:
        until(first.ready, PATIENCE_S)
        lives = world.lives(name)
        job = world.call("outlives_in_a_thread", tag)
        world.begun(tag)
        first.process.send_signal(signal.SIGTERM)
        until(lambda: world.lives(name) is None, PATIENCE_S)  # it has drained, and left
        with world.executor(name, name) as early:
            assert early.ended() == AGAIN, "the lock was free while a thread could act"
        assert world.events(job, "worker_ended") == []
        assert world.worker(name)["left"] == [lives]
        world.let_go(tag)
        first.ended()
        with world.executor(name, name):
            world.ended_once(job, tag)
    (end,) = world.events(job, "worker_ended")
    assert (end["incarnation"], end["how"]) == (lives, "lock")


@pytest.mark.parametrize("tool", ["outlives_in_a_child", "outlives_in_a_childs_child"])
def test_what_outlives_kill_9_is_waited_for(world: World, tool: str) -> None:
    name, tag = fresh(), fresh()
    with world.executor(name, name) as first:
        until(first.ready, PATIENCE_S)
        job = world.call(tool, tag)
        world.begun(tag)
        first.process.kill()
        first.process.wait()
        with world.executor(name, name) as second:
            until(lambda: "that may act" in second.unready(), PATIENCE_S)
            assert world.events(job, "worker_ended") == []
            world.let_go(tag)
            world.ended_once(job, tag)
    assert [one["how"] for one in world.events(job, "worker_ended")] == ["lock"]


def test_whose_volume_is_gone_is_ended_by_a_person_with_name_and_evidence(world: World) -> None:
    name, tag = fresh(), fresh()
    with world.executor(f"{name}-gone", name) as first:
        until(first.ready, PATIENCE_S)
        lives = world.lives(name)
        job = world.call("outlives_in_a_thread", tag)
        world.begun(tag)
        first.process.kill()
        first.process.wait()
    with world.executor(f"{name}-fresh", name) as second:
        assert second.ended() == AGAIN
    path = f"/workers/{name}/end"
    assert world.end(path, json={}).status_code == 400
    assert world.end(path, json={"evidence": "e", "incarnation": "other"}).status_code == 409
    assert world.end("/workers/nobody/end", json={"evidence": "e"}).status_code == 404
    answer = world.end(path, json={"evidence": "the node was taken away"})
    assert answer.status_code == 200, answer.text
    assert world.end(path, json={"evidence": "again", "incarnation": lives}).json() == answer.json()
    world.let_go(tag)
    with world.executor(f"{name}-fresh", name):
        world.ended_once(job, tag)
    (end,) = world.events(job, "worker_ended")
    assert (end["incarnation"], end["how"], end["evidence"]) == (lives, "human", "the node was taken away")
    assert end["by"] == "approver" != world.system.job(job)["submitted_by"]
    (named,) = world.system.report(job)["ended_by_hand"]
    assert (named["by"], named["evidence"]) == ("approver", "the node was taken away")


def test_who_submitted_a_job_gets_no_second_try_by_ending_its_worker(world: World) -> None:
    """Over HTTP he may not; forged into the topic, his word starts nothing in his own job, and is named."""
    name, tag = fresh(), fresh()
    with world.executor(f"{name}-gone", name) as first:
        until(first.ready, PATIENCE_S)
        lives = world.lives(name)
        job = world.call("outlives_in_a_thread", tag)
        world.begun(tag)
        refused = world.system.api.post(f"/workers/{name}/end", json={"evidence": "I want another try"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_an_operator")
        first.process.kill()
        first.process.wait()
    me = world.system.job(job)["submitted_by"]
    said = Ended(incarnation=lives or "", how=HUMAN, by=me, evidence="I want another try")
    world.system.forge(Topic.WORKERS, name, WorkerEntry(worker_id=name, ended=(said,)), "forged")
    until(lambda: bool(world.events(job, "worker_ended")), PATIENCE_S)
    with world.executor(f"{name}-fresh", name) as second:
        until(second.ready, PATIENCE_S)
        until(lambda: len(world.events(job, "invocation_parked")) == 1, PATIENCE_S)
        assert [one["by"] for one in world.events(job, "worker_ended")] == [me]
        assert (world.events(job, "invocation_reopened"), world.outside.count(tag)) == ([], 0)
        assert [one["by"] for one in world.system.report(job)["ended_by_hand"]] == [me]
        assert world.system.resolve(job, "a", "retry", "I know that it is gone").status_code == 200
        world.let_go(tag)
        world.ended_once(job, tag)


def test_who_lives_and_is_declared_ended_exits_at_once(world: World) -> None:
    name, tag = fresh(), fresh()
    world.outside.hold(tag)
    with world.executor(name, name) as first:
        until(first.ready, PATIENCE_S)
        job = world.call("poke_probeable", tag)
        world.outside.wait_for(1, tag, PATIENCE_S)
        answer = world.end(f"/workers/{name}/end", json={"evidence": "it looked dead"})
        assert answer.status_code == 200, answer.text
        assert first.ended() == AGAIN
        assert "declared ended" in first.log.read_text()
        with world.executor(name, name):
            world.ended_once(job, tag)


def test_two_installations_on_one_kafka_are_told_apart(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    state, data = world.system.state(), world.folder / "another"
    given = {"AETHERIS_KAFKA": state.kafka, "AETHERIS_DEV": "1", "AETHERIS_TOOLS": TOOLS, **world.outside.env}
    for key, value in (given | {"PYTHONPATH": str(REPOSITORY), "OUTLIVING": str(world.folder)}).items():
        monkeypatch.setenv(key, value)
    only = tuple(one for one in with_counts({}) if one.name == "executor")
    lifecycle.up(data, services=only, progress=lambda _part, _state: None)
    try:
        with world.executor("data", f"executor-0.{installation(world.system.data)}") as first:
            until(first.ready, PATIENCE_S)
            names = [f"executor-0.{installation(one)}" for one in (world.system.data, data)]
            lives = [world.lives(name) for name in names]
            tag = fresh()
            jobs = [
                world.system.submit({"id": "a", "tool": "poke_probeable", "args": {"tag": f"{tag}-{number}"}})
                for number in range(12)
            ]
            for number, job in enumerate(jobs):
                world.ended_once(job, f"{tag}-{number}")
                assert world.events(job, "worker_ended") == []
            ran = {one["worker_id"] for job in jobs for one in world.events(job, "tool_invocation_started")}
            assert ran == set(names)
            assert [world.lives(name) for name in names] == lives
    finally:
        lifecycle.down(data)


def test_a_started_by_who_was_declared_ended_starts_nothing(world: World) -> None:
    """Its process sleeps through its own end, and wakes with a grant in hand."""
    name, tag = fresh(), fresh()
    with world.executor(name, name) as first:
        until(first.ready, PATIENCE_S)
        os.kill(first.process.pid, signal.SIGSTOP)
        job = world.call("poke_probeable", tag)
        until(lambda: world.system.job(job).get("status") == "running", PATIENCE_S)
        answer = world.end(f"/workers/{name}/end", json={"evidence": "it does not answer"})
        assert answer.status_code == 200, answer.text
        os.kill(first.process.pid, signal.SIGCONT)
        assert first.ended() == AGAIN
    with world.executor(f"{name}-next", name) as second:
        until(second.ready, PATIENCE_S)
        world.outside.hold(tag)
        (world.outside.folder / tag).unlink()
        world.ended_once(job, tag)


def test_names_are_listed(world: World) -> None:
    names = {one["worker_id"]: one for one in world.system.api.get("/workers").json()["workers"]}
    assert all(set(one) == {"worker_id", "live", "since", "left", "ended"} for one in names.values())
    with httpx.Client(base_url=world.system.api.base_url, trust_env=False) as stranger:
        assert stranger.get("/workers").status_code == 401
        assert stranger.post("/workers/w/end", json={"evidence": "e"}).status_code == 401
