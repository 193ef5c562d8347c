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
from tests.testkit.outside import Outside, running_outside, until
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

QUARANTINE = {"AFTER": "4", "JOBS": "2", "S": "3", "MAX_S": "4"}


@dataclass(frozen=True)
class World:
    system: System
    outside: Outside

    def submit(self, tag: str, tool: str = "poke_probeable", hold: str = "") -> str:
        retry = {"max_attempts": 30, "backoff_s": 0.1, "max_backoff_s": 0.5}
        return self.system.submit({"id": "a", "tool": tool, "args": {"tag": tag, "hold": hold}, "retry": retry})

    def began(self, job: str) -> bool:
        found = self.system.api.get(f"/jobs/{job}/events").json()
        return any(event["type"] == "tool_invocation_started" for event in found)

    def tool(self, name: str) -> dict[str, Any]:
        tools = self.system.api.get("/tools").json()["tools"]
        return next(one for one in tools if one["name"] == name)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("quarantine")
    with running_outside(folder / "outside") as outside:
        own = {"AETHERIS_TOOLS": "tests.testkit.outside_tools", "AETHERIS_PARTITIONS": "1"}
        env = own | {f"AETHERIS_QUARANTINE_{name}": value for name, value in QUARANTINE.items()}
        with running_system(folder / "data", env | outside.env) as system:
            yield World(system, outside)


def test_calls_of_a_failing_tool_wait_while_others_complete_and_complete_once_it_is_well(world: World) -> None:
    tag = fresh("failing")
    down = world.outside.refuse(tag)
    failing = [world.submit(f"{tag}-{number}", hold=tag) for number in range(3)]
    until(lambda: "quarantined" in world.tool("poke_probeable"), 30)
    waiting = [world.submit(f"{tag}-w{number}", hold=tag) for number in range(12)]
    until(lambda: all("quarantine until" in world.system.job(job).get("why", "") for job in waiting), 30)
    view = world.system.job(waiting[-1])
    assert (view["status"], view["steps"][0]["state"]) == ("running", "pending")
    assert view["why"].startswith("a waits: tool poke_probeable is in quarantine until ")
    others = [world.submit(f"{tag}-o{number}", "poke_idempotent") for number in range(5)]
    world.system.wait_ended(others)
    assert {world.system.job(job)["status"] for job in others} == {"completed"}
    assert "quarantined" not in world.tool("poke_idempotent")
    until(lambda: any(not one.ok and "poke_probeable is in quarantine" in one.detail for one in _examined(world)), 30)
    assert "in quarantine until" in _cli(world, "tools")
    assert sum(world.began(job) for job in waiting) <= len(waiting) // 2, "few are tried, the others never began"
    assert world.outside.count() == len(others)
    down.unlink()
    world.system.wait_ended([*failing, *waiting])
    for job, number in zip([*failing, *waiting], [*range(3), *(f"w{number}" for number in range(12))], strict=True):
        assert world.system.job(job)["status"] == "completed"
        assert world.outside.count(f"{tag}-{number}") == 1
    for job in failing:
        world.system.verified(job)
    assert "quarantined" not in world.tool("poke_probeable")
    assert "why" not in world.system.job(waiting[0])


def test_a_flush_and_a_restart_merely_forget_it(world: World) -> None:
    tag = fresh("forgotten")
    down = world.outside.refuse(tag)
    failing = [world.submit(f"{tag}-{number}", hold=tag) for number in range(3)]
    until(lambda: "quarantined" in world.tool("poke_probeable"), 30)
    world.system.flush_redis()
    world.system.kill("ledger-0")
    world.system.wait_ready()
    down.unlink()
    world.system.wait_ended(failing)
    for number, job in enumerate(failing):
        assert world.outside.count(f"{tag}-{number}") == 1
        world.system.verified(job)


def _examined(world: World) -> list[Any]:
    return examine(world.system.data)


def _cli(world: World, *argv: str) -> str:
    called = [sys.executable, "-m", "aetheris.cli", *argv, "--data", str(world.system.data), "--json"]
    done = subprocess.run(called, capture_output=True, text=True, check=True, timeout=60)
    found = {one["name"]: one.get("quarantined") for one in json.loads(done.stdout)}
    assert found["poke_probeable"]["failures"] >= int(QUARANTINE["AFTER"])
    return subprocess.run(called[:-1], capture_output=True, text=True, check=True, timeout=60).stdout
