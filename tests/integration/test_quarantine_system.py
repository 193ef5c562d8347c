"""A tool that fails for every job, on the whole system: its calls wait and others go on, until it is well again."""

import json
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from aetheris.cli.embedded.doctor import examine
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, running_rig

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

QUARANTINE = {"AFTER": "4", "JOBS": "2", "S": "3", "MAX_S": "4"}


@dataclass(frozen=True)
class FailingToolRig(Rig):
    """Its tool fails for as long as the server refuses."""

    def submit(self, tag: str, tool: str = "poke_probeable", hold: str = "") -> str:
        retry = {"max_attempts": 30, "backoff_s": 0.1, "max_backoff_s": 0.5}
        return self.system.submit({"id": "a", "tool": tool, "args": {"tag": tag, "hold": hold}, "retry": retry})

    def tool(self, name: str) -> dict[str, Any]:
        tools = self.system.api.get("/tools").json()["tools"]
        return next(one for one in tools if one["name"] == name)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[FailingToolRig]:
    env = {f"AETHERIS_QUARANTINE_{name}": value for name, value in QUARANTINE.items()}
    with running_rig(tmp_path_factory.mktemp("quarantine"), {"AETHERIS_PARTITIONS": "1", **env}) as rig:
        yield FailingToolRig(rig.system, rig.external)


def test_calls_of_a_failing_tool_wait_while_others_complete_and_complete_once_it_is_well(rig: FailingToolRig) -> None:
    tag = fresh("failing")
    down = rig.external.refuse(tag)
    failing = [rig.submit(f"{tag}-{number}", hold=tag) for number in range(3)]
    until(lambda: "quarantined" in rig.tool("poke_probeable"), 30)
    waiting = [rig.submit(f"{tag}-w{number}", hold=tag) for number in range(12)]
    until(lambda: all("quarantine until" in rig.system.job(job).get("why", "") for job in waiting), 30)
    view = rig.system.job(waiting[-1])
    assert (view["status"], view["steps"][0]["state"]) == ("running", "pending")
    assert view["why"].startswith("a waits: tool poke_probeable is in quarantine until ")
    others = [rig.submit(f"{tag}-o{number}", "poke_idempotent") for number in range(5)]
    rig.system.wait_ended(others)
    assert {rig.system.job(job)["status"] for job in others} == {"completed"}
    assert "quarantined" not in rig.tool("poke_idempotent")
    until(lambda: any(not one.ok and "poke_probeable is in quarantine" in one.detail for one in _examined(rig)), 30)
    assert "in quarantine until" in _cli(rig, "tools")
    assert sum("tool_invocation_started" in rig.system.types(job) for job in waiting) <= len(waiting) // 2, (
        "few are tried, the others never began"
    )
    assert rig.external.count() == len(others)
    down.unlink()
    rig.system.wait_ended([*failing, *waiting])
    for job, number in zip([*failing, *waiting], [*range(3), *(f"w{number}" for number in range(12))], strict=True):
        assert rig.system.job(job)["status"] == "completed"
        assert rig.external.count(f"{tag}-{number}") == 1
    for job in failing:
        rig.system.verified(job)
    assert "quarantined" not in rig.tool("poke_probeable")
    assert "why" not in rig.system.job(waiting[0])


def test_a_flush_and_a_restart_merely_forget_it(rig: FailingToolRig) -> None:
    tag = fresh("forgotten")
    down = rig.external.refuse(tag)
    failing = [rig.submit(f"{tag}-{number}", hold=tag) for number in range(3)]
    until(lambda: "quarantined" in rig.tool("poke_probeable"), 30)
    rig.system.flush_redis()
    rig.system.kill("ledger-0")
    rig.system.wait_ready()
    down.unlink()
    rig.system.wait_ended(failing)
    for number, job in enumerate(failing):
        assert rig.external.count(f"{tag}-{number}") == 1
        rig.system.verified(job)


def _examined(rig: FailingToolRig) -> list[Any]:
    return examine(rig.system.data)


def _cli(rig: FailingToolRig, *argv: str) -> str:
    called = [sys.executable, "-m", "aetheris.cli", *argv, "--data", str(rig.system.data), "--json"]
    done = subprocess.run(called, capture_output=True, text=True, check=True, timeout=60)
    found = {one["name"]: one.get("quarantined") for one in json.loads(done.stdout)}
    assert found["poke_probeable"]["failures"] >= int(QUARANTINE["AFTER"])
    return subprocess.run(called[:-1], capture_output=True, text=True, check=True, timeout=60).stdout
