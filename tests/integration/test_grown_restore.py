"""A log that has grown loses its newest records, and all servers: it is restored as it grew, behind its fence."""

import asyncio
from pathlib import Path

import pytest

from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka.admin import partition_counts
from tests.integration.test_backup_drill import (
    command,
    counted,
    dying_system,
    is_told,
    kill_all,
    moved,
    submitted,
)
from tests.testkit.attempts import fresh
from tests.testkit.external_server import running_outside, until
from tests.testkit.rig import TOOLS, poke
from tests.testkit.system import ENDED, System, running_system

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(600)]

FIRST, GROWN, LATER = 4, 9, 11
JOBS, BEHIND = 8, 4
PATIENCE_S = 120.0
_BIRTH = b"io.aetheris.job_created.v1"


def births(system: System) -> dict[str, set[tuple[int, int]]]:
    """Job → (partition, offset) of each creation of it."""
    found: dict[str, set[tuple[int, int]]] = {}
    for one in system.records(Topic.JOBS_EVENTS):
        if one.header("ce_type") == _BIRTH:
            found.setdefault((one.key or b"").decode(), set()).add((one.partition, one.offset))
    return found


def grow(system: System, count: int) -> None:
    assert len(command("topics", "grow", str(count), "--data", str(system.data))["grown"]) == 20


def counts(system: System) -> dict[str, int]:
    return {name: count for name, (count, _) in asyncio.run(partition_counts(system.state().kafka)).items()}


def ended_where(system: System, least: int) -> str:
    """A sealed job that lies in this partition, or in a later one."""
    while True:
        job = system.completed(poke("one", fresh("sealed")))
        system.wait_sealed(job)
        if min(births(system)[job])[0] >= least:
            return job


def test_a_log_that_grew_comes_back_as_it_lay_and_does_nothing_twice(tmp_path: Path) -> None:
    old, new, kept = tmp_path / "old", tmp_path / "new", tmp_path / "backup"
    with running_outside(tmp_path / "outside") as external:
        env = {"AETHERIS_TOOLS": TOOLS, **external.env}
        with dying_system(old, env) as system:
            sealed = [ended_where(system, 0)]
            jobs = {submitted(system, tag): tag for tag in (fresh(f"early-{at}") for at in range(JOBS))}
            grow(system, GROWN)
            sealed.append(ended_where(system, FIRST))
            jobs |= {submitted(system, tag): tag for tag in (fresh(f"grown-{at}") for at in range(JOBS))}
            until(lambda: {*jobs} <= births(system).keys(), PATIENCE_S)
            lay = {job: where for job, where in births(system).items() if job in (*jobs, *sealed)}
            taken = command("backup", str(kept), "--data", str(old))
            unborn = {submitted(system, tag): tag for tag in (fresh(f"behind-{at}") for at in range(BEHIND))}
            lost = {**jobs, **unborn}
            until(lambda: len(counted(external, [*unborn.values()])) >= BEHIND, PATIENCE_S)
            kill_all(system)
        was = counted(external, [*lost.values()])
        assert max(was.values()) == 1
        moved(old, new)
        restored = command(
            *("restore", str(kept), "--data", str(new), "--by", "ann", "--old-ended", "its machine is gone"),
            *("--expect", taken["sha256"]),
        )
        held = {job["job_id"]: job for job in restored["jobs"]}
        assert all(job["paused"] for job in held.values())
        assert max(min(lay[job])[0] for job in held) >= FIRST, "no job was open in a partition that was added"
        with running_system(new, env) as system:
            found = counts(system)
            assert (found[Topic.JOBS_EVENTS], found[Topic.JOBS_COMMANDS], found[Topic.JOBS_INDEX]) == (9, 9, FIRST)
            assert {job for job in jobs if system.job(job)["status"] not in ENDED} == set(held), "each is named"
            assert {submitted(system, tag): tag for tag in lost.values()} == lost, "a repeat is the job that it was"
            until(lambda: all(system.types(job, "job_frozen") for job in unborn), PATIENCE_S)
            assert counted(external, [*lost.values()]) == was, "nothing acts behind the fence"
            told = [job for job in held if is_told(system, job, lost[job], was)]
            untold = [job for job in (*held, *unborn) if job not in told]
            for job in untold:  # somebody has looked outside, and ends what was done there
                answer = system.api.post(f"/jobs/{job}/cancel", json={})
                assert answer.status_code in (200, 202), answer.text
            for job in untold:
                until(lambda job=job: bool(system.types(job, "cancel_requested")), PATIENCE_S)
            answer = system.api.post("/freezes/end", json={"tenant": "default"}, headers=system.approver)
            assert answer.status_code == 200, answer.text
            for job in told:
                answer = system.api.post(f"/jobs/{job}/resume", json={})
                assert answer.status_code in (200, 202), answer.text
            system.wait_ended([*told, *untold], PATIENCE_S)
            grow(system, LATER)
            last = ended_where(system, GROWN)
            assert max(counted(external, [*lost.values()]).values()) == 1
            for job in (*sealed, *told, *untold, last):
                system.wait_sealed(job)
                assert system.verified(job)["ok"]
            now = births(system)
            assert {job: now[job] for job in lay} == lay, "each lies where it lay, and nowhere else"
            assert command("seals", "audit", "--data", str(new))["ok"]
