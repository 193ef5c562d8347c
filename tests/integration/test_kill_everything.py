"""100 jobs of 5 steps in flight, every service killed once, Redis flushed once: each effect is counted once outside."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from aetheris.cli.auditing import audit
from tests.outside import running_outside
from tests.system import System, running_system

JOBS, STEPS = 100, 5


def steps(number: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"s{step}",
            "tool": "poke_probeable",
            "args": {"tag": f"{number}/{step}", "delay_s": 0.05},
            "depends_on": [f"s{step - 1}"] if step else [],
        }
        for step in range(STEPS)
    ]


def outcome(system: System, job: str) -> str:
    """The job's outcome_hash: that of its plan and results, whatever happened on the way."""
    report = system.api.get(f"/jobs/{job}/verify").json()
    assert report["outcome_hash"], report
    return report["outcome_hash"]


@pytest.mark.timeout(300)
def test_every_service_is_killed_once(tmp_path: Path) -> None:
    env = {"AETHERIS_TOOLS": "tests.outside_tools"}
    with (
        running_outside(tmp_path / "outside") as outside,
        running_system(tmp_path / "data", env | outside.env) as system,
    ):
        jobs = [system.submit(*steps(number)) for number in range(JOBS)]
        for done, name in enumerate(("executor-0", "planner-0", "ledger-0", "verifier-0", "gateway-0"), start=1):
            outside.wait_for(done * JOBS * STEPS // 8)
            system.kill(name)
            if name == "planner-0":
                system.flush_redis()
        system.wait_ready()
        system.wait_ended(jobs, 120)
        assert [job for job in jobs if system.job(job)["status"] != "completed"] == []
        counts = Counter(effect["tag"] for effect in outside.effects())
        assert counts == {f"{number}/{step}": 1 for number in range(JOBS) for step in range(STEPS)}
        for job in jobs[:10]:
            report = system.api.get(f"/jobs/{job}/verify").json()
            assert report["ok"], report
        undisturbed = system.submit(*steps(0))
        system.wait_ended([undisturbed])
        assert outcome(system, undisturbed) == outcome(system, jobs[0]) != outcome(system, jobs[1])
        audited = asyncio.run(audit(system.state().kafka, None))
        assert audited["ok"], audited
