"""A person releases a tool from quarantine: in every partition of the ledger, by command, and through restarts."""

import json
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from aetheris.runtime.log.partitioning import partition_of
from tests.testkit.attempts import fresh
from tests.testkit.outside import Outside, running_outside, until
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

PARTITIONS = 2
QUARANTINE = {"AFTER": "4", "JOBS": "2", "S": "3600", "MAX_S": "3600"}
"""Nobody waits so long: what goes on was released."""
TOOL = "poke_probeable"


@dataclass(frozen=True)
class World:
    system: System
    outside: Outside

    def submit(self, tag: str, hold: str) -> str:
        retry = {"max_attempts": 30, "backoff_s": 0.1, "max_backoff_s": 0.5}
        return self.system.submit({"id": "a", "tool": TOOL, "args": {"tag": tag, "hold": hold}, "retry": retry})

    def held(self, job: str) -> bool:
        return "quarantine until" in self.system.job(job).get("why", "")

    def tool(self) -> dict[str, Any]:
        return next(one for one in self.system.api.get("/tools").json()["tools"] if one["name"] == TOOL)

    def cli(self, *argv: str) -> str:
        called = [sys.executable, "-m", "aetheris.cli", *argv, "--data", str(self.system.data)]
        return subprocess.run(called, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("release")
    with running_outside(folder / "outside") as outside:
        own = {"AETHERIS_TOOLS": "tests.testkit.outside_tools", "AETHERIS_PARTITIONS": str(PARTITIONS)}
        env = own | {f"AETHERIS_QUARANTINE_{name}": value for name, value in QUARANTINE.items()}
        with running_system(folder / "data", env | outside.env) as system:
            yield World(system, outside)


def test_a_release_lets_calls_go_on_in_every_partition_and_outlives_the_ledger(world: World) -> None:
    tag = fresh("released")
    down = world.outside.refuse(tag)
    jobs = [world.submit(f"{tag}-{number}", tag) for number in range(16)]
    places = [partition_of(job, PARTITIONS) for job in jobs]
    assert min(places.count(number) for number in range(PARTITIONS)) >= 2, "two jobs make a tool wait"
    until(lambda: all(world.held(job) for job in jobs), 60)
    down.unlink()
    told = world.cli("tools", "release", TOOL, "--reason", "the bank is back")
    assert told.startswith(f"{TOOL}: released by ")
    world.system.wait_ended(jobs)
    assert {world.system.job(job)["status"] for job in jobs} == {"completed"}
    assert [world.outside.count(f"{tag}-{number}") for number in range(16)] == [1] * 16
    said = world.tool()
    assert "quarantined" not in said
    assert said["released"]["reason"] == "the bank is back"
    world.system.kill("ledger-0")
    world.system.wait_ready()
    assert world.tool()["released"] == said["released"]
    assert "the bank is back" in world.cli("tools")
    later = world.submit(f"{tag}-later", tag)
    world.system.wait_ended([later])
    assert json.loads(world.cli("job", later, "--json"))["status"] == "completed"


def test_a_tool_that_fails_again_waits_again_and_a_release_wants_a_reason_and_a_tool(world: World) -> None:
    tag = fresh("again")
    down = world.outside.refuse(tag)
    jobs = [world.submit(f"{tag}-{number}", tag) for number in range(12)]
    until(lambda: all(world.held(job) for job in jobs), 60)
    assert world.system.api.post(f"/tools/{TOOL}/release", json={}).status_code == 400
    unknown = world.system.api.post("/tools/nobody/release", json={"reason": "x"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_tool")
    assert all(world.held(job) for job in jobs)
    down.unlink()
    assert world.system.api.post(f"/tools/{TOOL}/release", json={"reason": "mended"}).status_code == 200
    world.system.wait_ended(jobs)
