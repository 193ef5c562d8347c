"""A freeze on the whole system: behind its answer nothing starts, whoever dies between order and answer."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from aetheris.cli import token_files
from aetheris.runtime.log.partitioning import partition_of
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke, running_rig

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

PARTITIONS = 2


@dataclass(frozen=True)
class FreezeRig(Rig):
    """Somebody operates it, and somebody else submits."""

    def say(self, path: str, **body: Any) -> httpx.Response:
        return self.system.api.post(path, json=body, headers=self.system.approver, timeout=60)

    def listed(self) -> list[dict[str, Any]]:
        return self.system.api.get("/freezes", headers=self.system.approver).json()["freezes"]

    def cli(self, *argv: str) -> str:
        called = [sys.executable, "-m", "aetheris.cli", *argv, "--data", str(self.system.data)]
        called += ["--as", token_files.APPROVER]
        return subprocess.run(called, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[FreezeRig]:
    folder = tmp_path_factory.mktemp("freezes")
    with running_rig(folder, {"AETHERIS_PARTITIONS": str(PARTITIONS)}) as rig:
        yield FreezeRig(rig.system, rig.external)


def test_behind_the_answer_no_call_of_an_agent_starts_though_the_ledger_is_killed_before_it(rig: FreezeRig) -> None:
    tag = fresh("frozen")
    held = rig.external.hold(tag)
    job = rig.system.submit(poke("a", tag, hold=tag), poke("b", f"{tag}-b", "a"))
    rig.external.wait_for(1, tag)
    agent = rig.system.job(job)["submitted_by"]
    ledger = rig.system.pid("ledger-0")
    os.kill(ledger, signal.SIGSTOP)
    with ThreadPoolExecutor() as people:
        answering = people.submit(rig.say, "/freezes", agent=agent, reason="it runs wild")
        until(lambda: [one["answered"] for one in rig.listed()] == [0], 20)
        os.kill(ledger, signal.SIGKILL)
        answer = answering.result()
    body = answer.json()
    assert (answer.status_code, body["answered"], body["partitions"]) == (200, PARTITIONS, PARTITIONS), body
    assert [(one["job_id"], one["node_id"]) for one in body["acting"]] == [(job, "a")]
    later = [rig.system.submit(poke("a", f"{tag}-later-{number}")) for number in range(6)]
    assert len({partition_of(one, PARTITIONS) for one in later}) == PARTITIONS
    held.unlink()
    until(lambda: rig.system.types(job, "node_finished") == ["node_finished"], 30)
    for one in later:
        until(lambda one=one: rig.system.types(one, "job_frozen") == ["job_frozen"], 30)
    for service in ("executor-0", "ledger-0", "planner-0"):
        rig.system.kill(service)
    rig.system.wait_ready()
    view = rig.system.job(job)
    assert view["status"] == "frozen"
    assert view["why"].startswith(f"agent {agent} is frozen by {body['by']} since {body['at']}: it runs wild")
    listed = rig.system.api.get("/jobs", params={"status": "frozen"}).json()["jobs"]
    assert {row["job_id"] for row in listed} == {job, *later}
    assert {row["frozen"]["by"] for row in listed} == {body["by"]}
    assert f"agent {agent}" in rig.cli("freezes")
    assert rig.say("/freezes", agent=agent).json()["number"] == 1, "frozen already: it stays as it is"
    assert not any("tool_invocation_started" in rig.system.types(one) for one in later)
    assert rig.external.count(f"{tag}-b") == 0
    assert "unfrozen" in rig.cli("unfreeze", "--agent", agent)
    rig.system.wait_ended([job, *later])
    counts = [rig.external.count(name) for name in (tag, f"{tag}-b", *(f"{tag}-later-{number}" for number in range(6)))]
    assert counts == [1] * 8
    for one in (job, *later):
        assert rig.system.job(one)["status"] == "completed"
        rig.system.verified(one)
    again = rig.say("/freezes/end", agent=agent)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "not_frozen")
    assert rig.listed() == []


def test_a_frozen_tool_holds_its_own_calls_and_no_others(rig: FreezeRig) -> None:
    tag = fresh("tool")
    assert rig.say("/freezes", tool="poke_probeable").status_code == 200
    held = rig.system.submit(poke("a", tag, tool="poke_idempotent"), poke("b", f"{tag}-b", "a"))
    until(lambda: rig.system.types(held, "node_finished") == ["node_finished"], 30)
    assert "tool poke_probeable is frozen by" in rig.system.job(held)["why"]
    assert [rig.external.count(tag), rig.external.count(f"{tag}-b")] == [1, 0]
    rig.system.completed(poke("a", fresh("other"), tool="poke_idempotent"))
    assert rig.say("/freezes/end", tool="poke_probeable").status_code == 200
    rig.system.wait_ended([held])
    assert rig.external.count(f"{tag}-b") == 1
    rig.system.verified(held)


def test_who_may_not_freeze_is_refused(rig: FreezeRig) -> None:
    submitter = rig.system.api.post("/freezes", json={"tenant": "default"})
    assert (submitter.status_code, submitter.json()["error"]["code"]) == (403, "missing_role")
    for body in ({}, {"agent": "x", "tool": "y"}, {"everywhere": True, "agent": "x"}, {"tool": "t" * 300}):
        assert rig.say("/freezes", **body).status_code == 400
    assert rig.listed() == []
