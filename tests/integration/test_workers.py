"""Attacks on ends of workers, on a real Kafka: two of one name, threads and children that act late, people's words."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.services import with_counts
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.words import LifeWord, LifeWords
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages.commands import WorkerEnd, WorkerEntry
from aetheris.runtime.process.installation import installation
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, running_rig
from tests.testkit.services import ServiceProcess, running_service
from tests.testkit.system import REPOSITORY

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 90.0
AGAIN = 75
"""Another start makes sense: whoever stands in its way may be gone by then."""
TOOLS = "tests.testkit.external_tools,tests.testkit.worker_tools"


@dataclass(frozen=True)
class WorkersRig(Rig):
    """Everything but executors: tests start their own."""

    folder: Path

    @contextmanager
    def executor(self, folder: str, name: str | None = None, **env: str) -> Generator[ServiceProcess]:
        given = {
            "AETHERIS_KAFKA": self.system.state().kafka,
            "AETHERIS_REDIS": self.system.state().redis,
            "AETHERIS_DATA": str(self.folder / folder),
            "AETHERIS_INSTALLATION": self.system.installation,
            "AETHERIS_TOOLS": TOOLS,
            "AETHERIS_TOOL_DRAIN_S": "1",
            "PYTHONPATH": str(REPOSITORY),
            "OUTLIVING": str(self.folder),
            **self.external.env,
            **env,
        }
        named = {"AETHERIS_WORKER_ID": name} if name is not None else {}
        with running_service("tool_executor", self.folder, given | named) as running:
            yield running

    def call(self, tool: str, tag: str, **node: Any) -> str:
        args = {"tag": tag, "hold": tag} if tool.startswith("poke") else {"tag": tag}
        return self.system.submit({"id": "a", "tool": tool, "args": args, **node})

    def begun(self, tag: str) -> int:
        """The process of a call that outlives its executor, once it has begun."""
        file = self.folder / f"{tag}.begun"
        until(lambda: file.exists() and file.read_text() != "", PATIENCE_S)
        return int(file.read_text())

    def let_go(self, tag: str) -> None:
        (self.folder / f"{tag}.go").touch()

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
        assert self.external.count(tag) == 1
        self.system.verified(job)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[WorkersRig]:
    folder = tmp_path_factory.mktemp("workers")
    # a lease outlasts the start of a successor: what it says of the end is there before anybody asks outside
    env = {"AETHERIS_TOOLS": TOOLS, "AETHERIS_LEASE_TTL_S": "8", "AETHERIS_END_WAIT_S": "20"}
    with running_rig(folder, env, executor=0) as rig:
        yield WorkersRig(rig.system, rig.external, folder)


def fresh() -> str:
    return f"w-{uuid4().hex[:8]}"


def test_a_second_host_of_the_same_name_is_refused_and_says_nothing(rig: WorkersRig) -> None:
    name, tag = fresh(), fresh()
    rig.external.hold(tag)
    with rig.executor(f"{name}-one", name) as first:
        until(first.ready, PATIENCE_S)
        lives = rig.lives(name)
        job = rig.call("poke_probeable", tag)
        rig.external.wait_for(1, tag, PATIENCE_S)
        with rig.executor(f"{name}-two", name) as second:
            assert second.wait_ended() == AGAIN
            assert "worker_id_taken" in second.log.read_text()
            assert "aetheris workers end" in second.log.read_text()
        assert (rig.lives(name), rig.worker(name)["ended"]) == (lives, [])
        assert first.ready(), "its partitions are its own"
        (rig.external.folder / tag).unlink()
        rig.ended_once(job, tag)
    assert rig.system.data_of(job, "worker_ended") == []


def test_two_hosts_without_a_name_have_two(rig: WorkersRig) -> None:
    with rig.executor("host-one") as first, rig.executor("host-two") as second:
        until(lambda: first.ready() and second.ready(), PATIENCE_S)
        ids = [installation(rig.folder / host) for host in ("host-one", "host-two")]
        lives = [rig.lives(f"worker-0.{one}") for one in ids]
        assert None not in lives
        assert lives[0] != lives[1]
        job, tag = None, fresh()
        for number in range(8):  # of every partition
            job = rig.system.submit({"id": "a", "tool": "poke_probeable", "args": {"tag": f"{tag}-{number}"}})
            rig.ended_once(job, f"{tag}-{number}")


def test_its_successor_on_the_same_folder_ends_it_and_nobody_else(rig: WorkersRig) -> None:
    name, tag = fresh(), fresh()
    rig.external.hold(tag)
    with rig.executor(name, name) as first:
        until(first.ready, PATIENCE_S)
        lives = rig.lives(name)
        job = rig.call("poke_probeable", tag)
        rig.external.wait_for(1, tag, PATIENCE_S)
        assert [(one["node_id"], one["incarnation"]) for one in rig.worker(name)["open"]] == [("a", lives)]
        first.process.kill()
        with rig.executor(name, name):
            rig.ended_once(job, tag)
    (end,) = rig.system.data_of(job, "worker_ended")
    assert (end["worker_id"], end["incarnation"], end["how"]) == (name, lives, "lock")


def test_a_thread_that_acts_after_the_drain_keeps_the_lock(rig: WorkersRig) -> None:
    name, tag = fresh(), fresh()
    with rig.executor(name, name) as first:
        until(first.ready, PATIENCE_S)
        lives = rig.lives(name)
        job = rig.call("outlives_in_a_thread", tag)
        rig.begun(tag)
        first.process.send_signal(signal.SIGTERM)
        until(lambda: rig.lives(name) is None, PATIENCE_S)  # it has drained, and left
        with rig.executor(name, name) as early:
            assert early.wait_ended() == AGAIN, "the lock was free while a thread could act"
        assert rig.system.data_of(job, "worker_ended") == []
        assert rig.worker(name)["left"] == [lives]
        rig.let_go(tag)
        first.wait_ended()
        with rig.executor(name, name):
            rig.ended_once(job, tag)
    (end,) = rig.system.data_of(job, "worker_ended")
    assert (end["incarnation"], end["how"]) == (lives, "lock")


@pytest.mark.parametrize("tool", ["outlives_in_a_child", "outlives_in_a_childs_child"])
def test_what_outlives_kill_9_is_waited_for(rig: WorkersRig, tool: str) -> None:
    name, tag = fresh(), fresh()
    with rig.executor(name, name) as first:
        until(first.ready, PATIENCE_S)
        job = rig.call(tool, tag)
        rig.begun(tag)
        first.process.kill()
        first.process.wait()
        with rig.executor(name, name) as second:
            until(lambda: "that may act" in second.unready("worker"), PATIENCE_S)
            assert rig.system.data_of(job, "worker_ended") == []
            rig.let_go(tag)
            rig.ended_once(job, tag)
    assert [one["how"] for one in rig.system.data_of(job, "worker_ended")] == ["lock"]


def test_whose_volume_is_gone_is_ended_by_a_person_with_name_and_evidence(rig: WorkersRig) -> None:
    name, tag = fresh(), fresh()
    with rig.executor(f"{name}-gone", name) as first:
        until(first.ready, PATIENCE_S)
        lives = rig.lives(name)
        job = rig.call("outlives_in_a_thread", tag)
        rig.begun(tag)
        first.process.kill()
        first.process.wait()
    with rig.executor(f"{name}-fresh", name) as second:
        assert second.wait_ended() == AGAIN
    path = f"/workers/{name}/end"
    assert rig.end(path, json={}).status_code == 400
    assert rig.end(path, json={"evidence": "e", "incarnation": "other"}).status_code == 409
    assert rig.end("/workers/nobody/end", json={"evidence": "e"}).status_code == 404
    answer = rig.end(path, json={"evidence": "the node was taken away"})
    assert answer.status_code == 200, answer.text
    assert rig.end(path, json={"evidence": "again", "incarnation": lives}).json() == answer.json()
    rig.let_go(tag)
    with rig.executor(f"{name}-fresh", name):
        rig.ended_once(job, tag)
    (end,) = rig.system.data_of(job, "worker_ended")
    assert (end["incarnation"], end["how"], end["evidence"]) == (lives, "human", "the node was taken away")
    assert end["by"] == "approver" != rig.system.job(job)["submitted_by"]
    (named,) = rig.system.report(job)["ended_by_hand"]
    assert (named["by"], named["evidence"]) == ("approver", "the node was taken away")


def test_who_submitted_a_job_gets_no_second_try_by_ending_its_worker(rig: WorkersRig) -> None:
    """Over HTTP he may not; said with the gateway's key, his word starts nothing in his own job, and is named."""
    name, tag = fresh(), fresh()
    with rig.executor(f"{name}-gone", name) as first:
        until(first.ready, PATIENCE_S)
        lives = rig.lives(name)
        # a ledger that has just started believes in a lease that it can't see for as long as a call may take
        job = rig.call("outlives_in_a_thread", tag, timeout_s=30)
        rig.begun(tag)
        refused = rig.system.api.post(f"/workers/{name}/end", json={"evidence": "I want another try"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "missing_role")
        first.process.kill()
        first.process.wait()
    me = rig.system.job(job)["submitted_by"]
    end = WorkerEnd(worker_id=name, incarnation=lives or "", by=me, evidence="I want another try")
    rig.system.say_as(Party.GATEWAY, Topic.WORKERS, end.key, end)
    until(lambda: bool(rig.system.data_of(job, "worker_ended")), PATIENCE_S)
    with rig.executor(f"{name}-fresh", name) as second:
        until(second.ready, PATIENCE_S)
        until(lambda: len(rig.system.data_of(job, "invocation_parked")) == 1, PATIENCE_S)
        assert [one["by"] for one in rig.system.data_of(job, "worker_ended")] == [me]
        assert (rig.system.data_of(job, "invocation_reopened"), rig.external.count(tag)) == ([], 0)
        assert [one["by"] for one in rig.system.report(job)["ended_by_hand"]] == [me]
        assert rig.system.resolve(job, "a", "retry", "I know that it is gone").status_code == 200
        rig.let_go(tag)
        rig.ended_once(job, tag)


def test_nobody_but_the_gateway_and_who_has_its_lock_says_that_a_worker_has_ended(rig: WorkersRig) -> None:
    """With the rights of another executor, or with another service's key: lines of its name, and persons' words."""
    name, tag, other = fresh(), fresh(), LifeWords.of(bytes(32))
    rig.external.hold(tag)
    with rig.executor(name, name) as first:
        until(first.ready, PATIENCE_S)
        lives = rig.lives(name) or ""
        job = rig.call("poke_probeable", tag)
        rig.external.wait_for(1, tag, PATIENCE_S)
        for word in (lives, other.word(LifeWord.ENDED)):
            for line in (
                WorkerEntry(worker_id=name, live=other.incarnation, left=(word,), ended=(word,)),
                WorkerEntry(worker_id=name, live=None, ended=(word,)),
            ):
                rig.system.forge(Topic.WORKERS, name, line, "/tool_executor/rogue")
        said = WorkerEnd(worker_id=name, incarnation=lives, by="ann", evidence="forged")
        rig.system.forge(Topic.WORKERS, said.key, said, "/tool_executor/rogue")
        for party in (Party.LEDGER, Party.PLANNER, Party.PROBER):
            rig.system.say_as(party, Topic.WORKERS, said.key, said)
        answer = rig.end(f"/workers/{name}/end", json={"evidence": "behind what was forged"})
        end = answer.json()["ended"]
        assert (end["incarnation"], end["how"], end["by"]) == (lives, "human", "approver")
        assert end["evidence"] == "behind what was forged"
        assert first.wait_ended() == AGAIN
        (rig.external.folder / tag).unlink()
        assert [one["evidence"] for one in rig.worker(name)["ended"] if one["incarnation"] == lives] == [
            "behind what was forged"
        ]
        with rig.executor(name, name):
            rig.ended_once(job, tag)
    assert [one["evidence"] for one in rig.system.data_of(job, "worker_ended")] == ["behind what was forged"]


def test_who_lives_and_is_declared_ended_exits_at_once(rig: WorkersRig) -> None:
    name, tag = fresh(), fresh()
    rig.external.hold(tag)
    with rig.executor(name, name) as first:
        until(first.ready, PATIENCE_S)
        job = rig.call("poke_probeable", tag)
        rig.external.wait_for(1, tag, PATIENCE_S)
        answer = rig.end(f"/workers/{name}/end", json={"evidence": "it looked dead"})
        assert answer.status_code == 200, answer.text
        assert first.wait_ended() == AGAIN
        assert "declared ended" in first.log.read_text()
        with rig.executor(name, name):
            rig.ended_once(job, tag)


def test_two_installations_on_one_kafka_are_told_apart(rig: WorkersRig, monkeypatch: pytest.MonkeyPatch) -> None:
    state, data = rig.system.state(), rig.folder / "another"
    given = {"AETHERIS_KAFKA": state.kafka, "AETHERIS_DEV": "1", "AETHERIS_TOOLS": TOOLS, **rig.external.env}
    given |= {"AETHERIS_INSTALLATION": rig.system.installation}
    for key, value in (given | {"PYTHONPATH": str(REPOSITORY), "OUTLIVING": str(rig.folder)}).items():
        monkeypatch.setenv(key, value)
    only = tuple(one for one in with_counts({}) if one.name == "executor")
    lifecycle.up(data, services=only, progress=lambda _part, _state: None)
    try:
        with rig.executor("data", f"executor-0.{installation(rig.system.data)}") as first:
            until(first.ready, PATIENCE_S)
            names = [f"executor-0.{installation(one)}" for one in (rig.system.data, data)]
            lives = [rig.lives(name) for name in names]
            tag = fresh()
            jobs = [
                rig.system.submit({"id": "a", "tool": "poke_probeable", "args": {"tag": f"{tag}-{number}"}})
                for number in range(12)
            ]
            for number, job in enumerate(jobs):
                rig.ended_once(job, f"{tag}-{number}")
                assert rig.system.data_of(job, "worker_ended") == []
            ran = {one["worker_id"] for job in jobs for one in rig.system.data_of(job, "tool_invocation_started")}
            assert ran == set(names)
            assert [rig.lives(name) for name in names] == lives
    finally:
        lifecycle.down(data)


def test_a_started_by_who_was_declared_ended_starts_nothing(rig: WorkersRig) -> None:
    """Its process sleeps through its own end, and wakes with a grant in hand."""
    name, tag = fresh(), fresh()
    with rig.executor(name, name) as first:
        until(first.ready, PATIENCE_S)
        os.kill(first.process.pid, signal.SIGSTOP)
        job = rig.call("poke_probeable", tag)
        until(lambda: rig.system.job(job).get("status") == "running", PATIENCE_S)
        answer = rig.end(f"/workers/{name}/end", json={"evidence": "it does not answer"})
        assert answer.status_code == 200, answer.text
        os.kill(first.process.pid, signal.SIGCONT)
        assert first.wait_ended() == AGAIN
    with rig.executor(f"{name}-next", name) as second:
        until(second.ready, PATIENCE_S)
        rig.external.hold(tag)
        (rig.external.folder / tag).unlink()
        rig.ended_once(job, tag)


def test_names_are_listed(rig: WorkersRig) -> None:
    names = {one["worker_id"]: one for one in rig.system.api.get("/workers").json()["workers"]}
    assert all(set(one) == {"worker_id", "live", "since", "left", "ended"} for one in names.values())
    with httpx.Client(base_url=rig.system.api.base_url, trust_env=False) as stranger:
        assert stranger.get("/workers").status_code == 401
        assert stranger.post("/workers/w/end", json={"evidence": "e"}).status_code == 401
