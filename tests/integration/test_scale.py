"""Many jobs that wait, and many that live: they cost nothing while idle, and survive a restart of everything."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.testkit.external_server import running_outside, until
from tests.testkit.system import System, running_system

pytestmark = pytest.mark.nightly

PARKED, LIVE = 1000, 1000
OF_A_CORE = 0.1
"""What the whole idle system may use. On a quiet machine 0.045, most of it the broker's own; polling would show."""
READY_WITHIN_S = 90.0
"""On a quiet machine 2 s for a service and under 10 s for everything; a busy one must not fail here."""


@pytest.mark.timeout(400)
def test_a_thousand_parked_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    with running_outside(tmp_path / "outside") as external:
        # No quarantine: every call of this tool fails, and all of them must be parked.
        env = {"AETHERIS_TOOLS": "tests.testkit.external_tools", "AETHERIS_QUARANTINE_AFTER": "0"} | external.env
        with running_system(data, env) as system:
            jobs = [system.submit({"id": "a", "tool": "poke_lost", "args": {"tag": str(n)}}) for n in range(PARKED)]
            until(lambda: _waiting(system) == PARKED, 120)
        with running_system(data, env) as system:
            until(lambda: _waiting(system) == PARKED, 30)
            assert {system.job(job)["status"] for job in jobs[::50]} == {"waiting"}
            assert external.count() == PARKED
            used = [_cores_used(system, 5.0)]
            while used[-1] >= OF_A_CORE and len(used) < 20:  # what a start leaves to do: audits, compilation
                used.append(_cores_used(system, 5.0))
    with capsys.disabled():
        sys.stdout.write(f"idle: {used[-1]:.3f} of a core, after {len(used) * 5} s\n")
    assert used[-1] < OF_A_CORE, used


@pytest.mark.timeout(400)
def test_a_restart_with_a_thousand_live_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_outside(tmp_path / "outside") as external:
        held = external.hold("all")
        data, env = tmp_path / "data", {"AETHERIS_TOOLS": "tests.testkit.external_tools"} | external.env
        took: dict[str, float] = {}
        with running_system(data, env) as system:
            nodes = (
                {"id": "a", "tool": "poke_probeable", "args": {"tag": "a", "hold": "all"}},
                {"id": "b", "tool": "poke_probeable", "args": {"tag": "b"}, "depends_on": ["a"]},
            )
            jobs = [system.submit(*nodes) for _ in range(LIVE)]
            for name in ("planner-0", "ledger-0", "verifier-0"):
                begun = time.monotonic()
                system.kill(name)
                system.wait_ready()
                took[name] = time.monotonic() - begun
            for part in system.state().parts.values():
                os.kill(part.pid or 0, signal.SIGKILL)
        begun = time.monotonic()
        with running_system(data, env) as system:
            system.wait_ready()
            took["everything"] = time.monotonic() - begun
            held.unlink()
            system.wait_ended(jobs, 240)
            assert (external.count("a"), external.count("b")) == (LIVE, LIVE)
    with capsys.disabled():
        sys.stdout.write("ready after " + ", ".join(f"{name} {s:.1f} s" for name, s in took.items()) + "\n")
    assert max(took.values()) < READY_WITHIN_S, took


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
