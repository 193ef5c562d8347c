"""A broker's disk is put back under a running system: who goes on says so, and a fence is the way out."""

import asyncio
import os
import shutil
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aetheris.cli.embedded import lifecycle
from aetheris.gateway.core.system_health import groups
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.refusal import REFUSED_STATUS
from aetheris.runtime.kafka.members import noted
from aetheris.runtime.worker import reached
from tests.integration.test_backup_drill import (
    command,
    counted,
    dying_system,
    is_told,
    kill_all,
    moved,
    steps,
    submitted,
)
from tests.testkit.attempts import fresh
from tests.testkit.external_server import running_outside, until
from tests.testkit.rig import TOOLS
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(600)]

JOBS, BEHIND = 6, 2
PATIENCE_S = 120.0
READERS = ("planner-0", "ledger-0", "executor-0", "verifier-0")


@contextmanager
def broker_away(system: System) -> Generator[list[Path]]:
    """Inside it has ended in good order: the folders of its partitions of jobs.events. Then it starts again."""
    supervisor, broker = lifecycle.supervisor_pid(system.data), system.pid("kafka")
    assert supervisor is not None
    os.kill(supervisor, signal.SIGSTOP)
    try:
        os.kill(broker, signal.SIGTERM)
        until(lambda: not runs(broker), PATIENCE_S)
        yield sorted((system.data / "kafka" / "log").glob(f"{Topic.JOBS_EVENTS}-*"))
    finally:
        os.kill(supervisor, signal.SIGCONT)


def runs(pid: int) -> bool:
    """One that has ended, and that its supervisor has not been told of, does not."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"


def log_cut(system: System) -> list[dict[str, Any]]:
    return system.api.get("/health", headers=system.approver).json().get("log_cut", [])


def read_to(system: System) -> dict[tuple[str, int], int]:
    """How far each service says in its group that it has read each partition of jobs.events."""

    async def ask() -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        places = [(str(Topic.JOBS_EVENTS), number) for number in range(4)]
        for group in (one for one in groups(()) if Topic.JOBS_EVENTS in one.topics):
            for (_, number), note in (await noted(system.state().kafka, group.name, places)).items():
                before = reached.noted(note)
                if before is not None:
                    found[group.service, number] = before.offset
        return found

    return asyncio.run(ask())


def test_what_a_disk_lost_is_told_and_comes_back_behind_a_fence(tmp_path: Path) -> None:
    old, new, disk, backup = tmp_path / "old", tmp_path / "new", tmp_path / "disk", tmp_path / "backup"
    with running_outside(tmp_path / "outside") as external:
        env = {"AETHERIS_TOOLS": TOOLS, **external.env}
        with dying_system(old, env) as system:
            ended = system.completed(*steps(fresh("ended")))
            system.wait_sealed(ended)
            jobs = {submitted(system, tag): tag for tag in (fresh(f"before-{at}") for at in range(JOBS))}
            until(lambda: sum(counted(external, [*jobs.values()]).values()) >= JOBS, PATIENCE_S)
            with broker_away(system) as partitions:
                for one in partitions:
                    shutil.copytree(one, disk / one.name)
            system.wait_ready(PATIENCE_S)
            ends = {number: end for (_, number), end in system.ends(Topic.JOBS_EVENTS).items()}
            unborn = {submitted(system, tag): tag for tag in (fresh(f"behind-{at}") for at in range(BEHIND))}
            lost = {**jobs, **unborn}
            system.wait_ended([*lost], PATIENCE_S)
            for job in lost:
                system.wait_sealed(job)
            now = {number: end for (_, number), end in system.ends(Topic.JOBS_EVENTS).items()}
            wanted = {(reader, number) for reader, number in read_to(system) if now[number] > ends[number]}
            assert wanted
            until(lambda: wanted == {one for one, at in read_to(system).items() if at >= ends[one[1]]}, PATIENCE_S)
            assert log_cut(system) == []
            with broker_away(system) as partitions:
                for one in partitions:
                    shutil.rmtree(one)
                    shutil.copytree(disk / one.name, one)
            until(lambda: {system.state().parts[one].last_exit for one in READERS} == {REFUSED_STATUS}, PATIENCE_S)
            until(lambda: {(one["service"], one["partition"]) for one in log_cut(system)} == wanted, PATIENCE_S)
            was = counted(external, [*lost.values()])
            assert set(was.values()) == {1}
            taken = command("backup", str(backup), "--data", str(old))
            kill_all(system)
        moved(old, new)
        restored = command(
            *("restore", str(backup), "--data", str(new), "--by", "ann", "--old-ended", "killed"),
            *("--expect", taken["sha256"]),
        )
        held = {job["job_id"] for job in restored["jobs"]}
        assert held == set(jobs), "all that was open where the log is cut"
        with running_system(new, env) as system:
            assert {submitted(system, tag): tag for tag in lost.values()} == lost, "their clients ask again"
            until(lambda: all(system.types(job, "job_frozen") for job in unborn), PATIENCE_S)
            assert all(system.job(job)["status"] == "paused" for job in jobs)
            told = [job for job in jobs if is_told(system, job, lost[job], was)]
            for job in (one for one in lost if one not in told):  # somebody has looked outside: all of it was done
                answer = system.api.post(f"/jobs/{job}/cancel", json={})
                assert answer.status_code in (200, 202), answer.text
            for job in (one for one in lost if one not in told):
                until(lambda job=job: bool(system.types(job, "cancel_requested")), PATIENCE_S)
            answer = system.api.post("/freezes/end", json={"tenant": "default"}, headers=system.approver)
            assert answer.status_code == 200, answer.text
            last = system.completed(*steps(fresh("after")))
            assert counted(external, [*lost.values()]) == was, "nothing that the log lost is done again"
            for job in (ended, last):
                system.wait_sealed(job)
                assert system.verified(job)["ok"]
            assert log_cut(system) == []
