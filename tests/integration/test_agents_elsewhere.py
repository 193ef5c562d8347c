"""The README's agent, as it stands there, on a scripted model: killed in a call, and run again (docs/agents.md)."""

import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aetheris.cli import local
from aetheris.testkit.scripted_model import ScriptedModel, running_model
from tests.outside import Outside, running_outside
from tests.system import REPOSITORY, System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

PATIENCE_S = 150.0
"""An agent's libraries alone take seconds to load."""


def refund(order: str, amount: Any = 5) -> dict[str, Any]:
    return {"calls": [{"tool": "refund", "args": {"order_id": order, "amount": amount}}]}


DONE = {"text": "It is done."}
SCRIPT = {
    "Refund order o-1.": [refund("o-1"), DONE],
    "Refund order o-2.": [refund("o-2"), refund("o-2"), DONE],
    "Refund order o-3.": [refund("o-3", "much"), refund("o-3"), DONE],
}


@dataclass(frozen=True)
class World:
    system: System
    outside: Outside
    model: ScriptedModel
    env: dict[str, str]
    script: Path

    @contextmanager
    def started(self, *orders: str) -> "Generator[subprocess.Popen[str]]":
        """The README's agent, in a process of its own; its runs follow one another. It is killed at the end."""
        argv = [sys.executable, str(self.script), *orders]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env) as agent:
            try:
                yield agent
            finally:
                agent.kill()

    def run(self, *orders: str) -> list[str]:
        with self.started(*orders) as agent:
            out, errors = agent.communicate(timeout=PATIENCE_S)
        assert agent.returncode == 0, errors
        return out.splitlines()


RUNS = """
import asyncio, sys

async def runs():
    for order in sys.argv[1:]:
        print(await settle(order))

asyncio.run(runs())
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("agents")
    readme = (REPOSITORY / "README.md").read_text()
    (agent,) = re.findall(r"## Keep your agent.*?```python\n(.*?)```", readme, re.DOTALL)
    assert len([line for line in agent.splitlines() if line.strip()]) <= 10
    script = folder / "agent.py"
    script.write_text(f"{agent}\n{RUNS}")
    with ExitStack() as running:
        outside = running.enter_context(running_outside(folder / "outside"))
        model, url = running.enter_context(running_model(SCRIPT))
        system = running.enter_context(
            running_system(folder / "data", {"AETHERIS_TOOLS": "tests.refund_tools", **outside.env})
        )
        where = local.target(system.data)
        env = {
            **os.environ,
            "AETHERIS_URL": where.url,
            "AETHERIS_TOKEN": where.token,
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "none",
        }
        yield World(system, outside, model, env, script)


def test_what_an_agent_has_done_is_not_done_again(world: World) -> None:
    held = world.outside.hold("refund")
    try:
        with world.started("o-1"):
            world.outside.wait_for(1, "o-1 5", PATIENCE_S)
    finally:
        held.unlink()
    assert world.run("o-1", "o-1") == ["It is done."] * 2
    assert world.outside.count("o-1 5") == 1
    assert world.model.calls_for("Refund order o-1.") == [0, 0, 1, 0, 1]
    (job,) = world.system.api.get("/jobs").json()["jobs"]
    assert world.system.api.get(f"/jobs/{job['job_id']}/verify").json()["violations"] == []


def test_what_is_meant_twice_is_done_twice_and_what_was_refused_may_be_corrected(world: World) -> None:
    assert world.run("o-2", "o-2", "o-3") == ["It is done."] * 3
    assert world.outside.count("o-2 5") == 2
    assert [one["tag"] for one in world.outside.effects() if one["tag"].startswith("o-3")] == ["o-3 5"]
    (asked,) = [one for one in world.model.requests if one.goal == "Refund order o-3." and one.turn == 1]
    assert "refused, and nothing was called" in str(asked.body)
    assert "amount" in str(asked.body)
    (shown,) = asked.body["tools"]
    assert shown["function"]["description"].startswith("Refund an order.")
