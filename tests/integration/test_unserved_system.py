"""A call whose tool no executor serves, on the whole system: it waits, says so, costs nothing, and goes on."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import TOOLS, Rig, poke, running_rig
from tests.testkit.services import ServiceProcess, running_service
from tests.testkit.system import REPOSITORY

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 90.0
NEXT = "tests.testkit.next_external_tools"
NEEDED = "poke_idempotent@2"


@dataclass(frozen=True)
class VersionsRig(Rig):
    """One executor serves version 1; tests start and stop the one that serves version 2."""

    folder: Path

    @contextmanager
    def executor(self, name: str, tools: str = NEXT, **env: str) -> Generator[ServiceProcess]:
        given = {
            "AETHERIS_KAFKA": self.system.state().kafka,
            "AETHERIS_REDIS": self.system.state().redis,
            "AETHERIS_DATA": str(self.folder / name),
            "AETHERIS_INSTALLATION": self.system.installation,
            "AETHERIS_TOOLS": tools,
            "AETHERIS_TOOL_DRAIN_S": "1",
            "AETHERIS_WORKER_ID": name,
            "AETHERIS_PARTITIONS": "1",
            "AETHERIS_POOL": "next" if tools == NEXT else "default",
            "PYTHONPATH": str(REPOSITORY),
            **self.external.env,
            **env,
        }
        with running_service("tool_executor", self.folder, given) as running:
            until(running.ready, PATIENCE_S)
            yield running
            if not running.ended():
                self.stop(running)

    def stop(self, executor: ServiceProcess) -> None:
        """In good order: it leaves its name."""
        executor.process.terminate()
        executor.wait_ended()

    def needs_next(self, tag: str) -> str:
        return self.system.submit(poke("a", f"{tag}-a", tool="poke_pure"), poke("b", tag, "a", tool="poke_idempotent"))

    def wait_told(self, *jobs: str) -> None:
        until(lambda: all(NEEDED in self.system.job(job).get("why", "") for job in jobs), PATIENCE_S)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[VersionsRig]:
    folder = tmp_path_factory.mktemp("unserved")
    env = {"AETHERIS_PARTITIONS": "1", "AETHERIS_UNSERVED_S": "0.5", "AETHERIS_JOBS_IN_FLIGHT": "2"}
    with running_rig(folder, env, executor=0) as found:
        rig = VersionsRig(found.system, found.external, folder)
        with rig.executor("next") as registering, rig.executor("now", TOOLS):
            rig.stop(registering)
            yield rig


def test_it_waits_and_says_so_and_goes_on_once_an_executor_comes(rig: VersionsRig) -> None:
    tag = fresh("unserved")
    job = rig.needs_next(tag)
    rig.wait_told(job)
    told = rig.system.job(job)
    assert (told["status"], told["steps"][1]["state"]) == ("waiting", "pending")
    assert told["why"].startswith(f"b waits: no executor serves {NEEDED}. Start one whose AETHERIS_TOOLS names")
    assert NEEDED in _cli(rig, "job", job)
    rig.system.kill("ledger-0")
    rig.system.wait_ready()
    rig.system.completed(poke("a", fresh("other"), tool="poke_probeable"))
    started = [one["node_id"] for one in rig.system.data_of(job, "tool_invocation_started")]
    assert (started, rig.external.count(tag)) == (["a"], 0), "nothing began, and no try was used up"
    with rig.executor("next"):
        rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "completed"
    assert rig.external.count(tag) == 1
    waits = [one["wait_type"] for one in rig.system.data_of(job, "job_waiting", "wait_completed")]
    assert waits == ["executor", "executor"], "it was said once, by whichever ledger, and ended once"
    rig.system.verified(job)


def test_those_that_wait_take_up_nobodys_room_and_can_be_cancelled(rig: VersionsRig) -> None:
    tag = fresh("room")
    waiting = [rig.needs_next(f"{tag}-{number}") for number in range(5)]
    rig.wait_told(*waiting)
    rig.system.completed(poke("a", fresh("room"), tool="poke_probeable"))
    for job in waiting:
        rig.system.api.post(f"/jobs/{job}/cancel", json={}).raise_for_status()
    rig.system.wait_ended(waiting)
    assert {rig.system.job(job)["status"] for job in waiting} == {"cancelled"}
    with rig.executor("next"):
        rig.system.completed(poke("a", fresh("after"), tool="poke_idempotent"))
    assert rig.external.count(f"{tag}-0") == 0


def test_a_call_whose_executor_is_killed_waits_for_another_that_serves_it(rig: VersionsRig) -> None:
    tag = fresh("killed")
    held = rig.external.hold(tag)
    with rig.executor("gone") as executor:
        job = rig.system.submit(poke("a", tag, tool="poke_idempotent", hold=tag))
        until(lambda: rig.external.count(tag) == 1, PATIENCE_S)
        executor.process.kill()
        executor.wait_ended()
    said = {"evidence": "it was killed"}
    rig.system.api.post("/workers/gone/end", json=said, headers=rig.system.approver).raise_for_status()
    rig.wait_told(job)
    held.unlink()
    with rig.executor("next"):
        rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "completed"
    keys = {one["key"] for one in rig.external.effects(tag=tag)}
    assert len(keys) == 1, "called again under the same key, as an idempotent tool is"
    rig.system.verified(job)


def _cli(rig: VersionsRig, *argv: str) -> str:
    called = [sys.executable, "-m", "aetheris.cli", *argv, "--data", str(rig.system.data)]
    return subprocess.run(called, capture_output=True, text=True, check=True, timeout=60).stdout.replace("\n", " ")
