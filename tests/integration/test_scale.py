"""Many jobs that wait, and many that live: they cost nothing while idle, and survive a restart of everything."""

import time
from pathlib import Path

import pytest

from aetheris.cli.embedded import lifecycle
from tests.outside import running_outside, until
from tests.system import System, running_system

PARKED, LIVE = 1000, 1000
OF_A_CORE = 0.15
"""What the whole idle system may use. Measured: 0.05, most of it the broker's own; polling would show."""


@pytest.mark.timeout(400)
def test_a_thousand_parked_jobs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_outside(tmp_path / "outside") as outside:
        env = {"AETHERIS_TOOLS": "tests.outside_tools"} | outside.env
        with running_system(data, env) as system:
            jobs = [system.submit({"id": "a", "tool": "poke_lost", "args": {"tag": str(n)}}) for n in range(PARKED)]
            until(lambda: _waiting(system) == PARKED, 120)
        with running_system(data, env) as system:
            until(lambda: _waiting(system) == PARKED, 30)
            assert {system.job(job)["status"] for job in jobs[::50]} == {"waiting"}
            assert outside.count() == PARKED
            assert _cores_used(system, 10.0) < OF_A_CORE


@pytest.mark.timeout(400)
def test_a_restart_with_a_thousand_live_jobs(tmp_path: Path) -> None:
    with running_outside(tmp_path / "outside") as outside:
        held = outside.hold("all")
        env = {"AETHERIS_TOOLS": "tests.outside_tools"} | outside.env
        with running_system(tmp_path / "data", env) as system:
            nodes = (
                {"id": "a", "tool": "poke_probeable", "args": {"tag": "a", "hold": "all"}},
                {"id": "b", "tool": "poke_probeable", "args": {"tag": "b"}, "depends_on": ["a"]},
            )
            jobs = [system.submit(*nodes) for _ in range(LIVE)]
            for name in ("planner-0", "ledger-0", "verifier-0"):
                begun = time.monotonic()
                system.kill(name)
                until(lambda: lifecycle.status(system.data).ready, 15)
                assert time.monotonic() - begun < 10, name
            held.unlink()
            system.wait_ended(jobs, 240)
            assert (outside.count("a"), outside.count("b")) == (LIVE, LIVE)


def _waiting(system: System) -> int:
    """How many jobs the list shows as waiting."""
    count, cursor = 0, None
    while True:
        params: dict[str, str | int] = {"status": "waiting", "limit": 200}
        answer = system.api.get("/jobs", params=params | ({"cursor": cursor} if cursor else {}))
        if answer.status_code != 200:
            return -1
        page = answer.json()
        count, cursor = count + len(page["jobs"]), page["cursor"]
        if cursor is None:
            return count


def _cores_used(system: System, seconds: float) -> float:
    """CPU seconds of every process of the system, a second."""
    before = _cpu_s(system)
    time.sleep(seconds)  # the measurement itself: a rate needs a time
    return (_cpu_s(system) - before) / seconds


def _cpu_s(system: System) -> float:
    total = 0
    for part in system.state().parts.values():
        fields = Path(f"/proc/{part.pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / 100
