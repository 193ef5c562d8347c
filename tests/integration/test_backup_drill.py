"""The disaster drill: a log loses its newest seconds, and all servers; outside nothing happens twice. Real parts."""

import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.errors import NotRunningError
from tests.testkit.attempts import fresh
from tests.testkit.external_server import ExternalServer, running_outside, until
from tests.testkit.rig import TOOLS, poke
from tests.testkit.system import ENDED, System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

BEFORE, BEHIND = 12, 4
STEPS = 4
LOST_S = 10.0


def command(*argv: str, ends: int = 0) -> Any:
    done = CliRunner().invoke(app, [*argv, "--json"])
    assert done.exit_code == ends, done.output
    return json.loads(done.stdout)


def steps(tag: str) -> list[dict[str, Any]]:
    """A chain of steps that take a while; what may not be repeated by whoever doesn't know."""
    tools = ("poke_probeable", "poke_opaque", "poke_probeable", "poke_opaque")
    return [
        poke(f"s{at}", f"{tag}/{at}", *([f"s{at - 1}"] if at else []), tool=tool, delay_s=1.0)
        for at, tool in enumerate(tools[:STEPS])
    ]


@contextmanager
def dying_system(data: Path, env: dict[str, str]) -> Generator[System]:
    """It is gone when the block ends."""
    with suppress(NotRunningError), running_system(data, env) as system:
        yield system


def kill_all(system: System) -> None:
    """kill -9 of everything, servers too: nothing says goodbye."""
    supervisor = lifecycle.supervisor_pid(system.data)
    pids = [part.pid for part in system.state().parts.values() if part.pid is not None]
    assert supervisor is not None
    for pid in (supervisor, *pids):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: lifecycle.supervisor_pid(system.data) is None, 20)


def counted(external: ExternalServer, tags: Sequence[str]) -> Counter[str]:
    return Counter(one["tag"] for one in external.effects() if one["tag"].startswith(tuple(f"{tag}/" for tag in tags)))


def submitted(system: System, tag: str) -> str:
    """As a client that may ask again submits it."""
    answer = system.api.post("/jobs", json={"plan": {"nodes": steps(tag)}}, headers={"Idempotency-Key": tag})
    assert answer.status_code == 202, answer.text
    return answer.json()["job_id"]


def moved(old: Path, new: Path) -> None:
    """What a backup does not have, and its owner keeps elsewhere; the rest is gone for good."""
    new.mkdir(mode=0o700)
    for name in ("keys", "tokens"):
        shutil.copytree(old / name, new / name)
    shutil.copy(old / "tokens.toml", new)
    shutil.rmtree(old)


def is_told(system: System, job: str, tag: str, was: Counter[str]) -> bool:
    """Whether its log says all that it did outside, and nobody must be asked about a step that was under way."""
    shown = system.job(job)["steps"]
    told = {step["node_id"] for step in shown if step["state"] == "completed"}
    done = {f"s{name.rpartition('/')[2]}" for name in was if name.startswith(f"{tag}/")}
    return done <= told and all(step["state"] in ("completed", "pending") for step in shown)


def test_a_log_without_its_newest_seconds_does_nothing_twice(tmp_path: Path) -> None:
    old, new, kept = tmp_path / "old", tmp_path / "new", tmp_path / "backup"
    with running_outside(tmp_path / "outside") as external:
        env = {"AETHERIS_TOOLS": TOOLS, **external.env}
        with dying_system(old, env) as system:
            ended = system.completed(*steps(fresh("ended")))
            system.wait_sealed(ended)
            jobs = {submitted(system, tag): tag for tag in (fresh(f"before-{at}") for at in range(BEFORE))}
            until(lambda: sum(counted(external, [*jobs.values()]).values()) >= BEFORE, 60)
            taken = command("backup", str(kept), "--data", str(old))
            begun = time.monotonic()
            unborn = {submitted(system, tag): tag for tag in (fresh(f"behind-{at}") for at in range(BEHIND))}
            lost = {**jobs, **unborn}
            until(lambda: time.monotonic() - begun >= LOST_S and bool(counted(external, [*unborn.values()])), 60)
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
        with running_system(new, env) as system:
            shown = {job: system.job(job) for job in jobs}
            assert {job for job in jobs if shown[job]["status"] not in ENDED} == set(held) != set(), "each is named"
            assert all("restored from the backup" in shown[job]["why"] for job in held)
            again = {submitted(system, tag): tag for tag in lost.values()}  # their clients were answered, and ask again
            assert again == lost, "a repeat is the job that it was"
            until(lambda: all(system.types(job, "job_frozen") for job in unborn), 60)
            assert counted(external, [*lost.values()]) == was, "nothing acts behind the fence"
            told = [job for job in (*held, *unborn) if is_told(system, job, lost[job], was)]
            untold = [job for job in (*held, *unborn) if job not in told]
            assert untold, "no job had done more than its log says: it shows nothing"
            for job in untold:  # somebody has looked outside, and ends what was done there
                answer = system.api.post(f"/jobs/{job}/cancel", json={})
                assert answer.status_code in (200, 202), answer.text
            for job in untold:
                until(lambda job=job: bool(system.types(job, "cancel_requested")), 30)
            answer = system.api.post("/freezes/end", json={"tenant": "default"}, headers=system.approver)
            assert answer.status_code == 200, answer.text
            assert counted(external, [*lost.values()]) == was, "what is paused waits for a word of its own"
            for job in (one for one in told if one in held):
                answer = system.api.post(f"/jobs/{job}/resume", json={})
                assert answer.status_code in (200, 202), answer.text
            system.wait_ended(told, 120)
            last = system.completed(*steps(fresh("after")))
            twice = {tag: count for tag, count in counted(external, [*lost.values()]).items() if count > 1}
            assert twice == {}
            for job in (ended, last, *told):
                system.wait_sealed(job)
                assert system.verified(job)["ok"]
            assert command("seals", "audit", "--data", str(new))["ok"]
