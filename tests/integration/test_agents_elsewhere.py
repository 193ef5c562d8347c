"""The README's agent, as it stands there, on a scripted model: killed in a call, and run again (docs/agents.md)."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aetheris.cli import local
from aetheris.testing.scripted_model import ScriptedModel, running_model
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.pages import readme_agent
from tests.testkit.rig import Rig, running_rig

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(400)]

PATIENCE_S = 150.0
"""An agent's libraries alone take seconds to load."""


def refund(order: str, amount: Any) -> dict[str, Any]:
    return {"calls": [{"tool": "refund", "args": {"order_id": order, "amount": amount}}]}


TOOLS = "tests.testkit.refund_tools"
DONE = {"text": "It is done."}
SCRIPT: dict[str, list[dict[str, Any]]] = {}


def goal(order: str, *amounts: Any) -> str:
    """What the agent is asked to do with an order; the model calls for a refund of each of the amounts."""
    asked = f"Refund order {order}."
    SCRIPT[asked] = [*(refund(order, amount) for amount in amounts), DONE]
    return asked


@dataclass(frozen=True)
class ReadmeAgentRig(Rig):
    """The agent of the README is `script`; `model` is the one that it asks."""

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

    def jobs(self) -> set[str]:
        """Those of the list."""
        return {one["job_id"] for one in self.system.api.get("/jobs").json()["jobs"]}

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
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[ReadmeAgentRig]:
    folder = tmp_path_factory.mktemp("agents")
    script = folder / "agent.py"
    script.write_text(f"{readme_agent()}\n{RUNS}")
    with running_model(SCRIPT) as (model, url), running_rig(folder, {"AETHERIS_TOOLS": TOOLS}) as rig:
        where = local.target(rig.system.data)
        env = {
            **os.environ,
            "AETHERIS_URL": where.url,
            "AETHERIS_TOKEN": where.token,
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "none",
        }
        yield ReadmeAgentRig(rig.system, rig.external, model, env, script)


def test_what_an_agent_has_done_is_not_done_again(rig: ReadmeAgentRig) -> None:
    order = fresh("o-1")
    asked = goal(order, 5)
    before = rig.jobs()
    held = rig.external.hold("refund")
    try:
        with rig.started(order):
            rig.external.wait_for(1, f"{order} 5", PATIENCE_S)
    finally:
        held.unlink()
    assert rig.run(order, order) == ["It is done."] * 2
    assert rig.external.count(f"{order} 5") == 1
    assert rig.model.calls_for(asked) == [0, 0, 1, 0, 1]
    until(lambda: rig.jobs() > before, PATIENCE_S)
    (job,) = rig.jobs() - before
    assert rig.system.report(job)["violations"] == []


def test_what_is_said_twice_is_done_once_and_what_was_refused_may_be_corrected(rig: ReadmeAgentRig) -> None:
    twice, mended = fresh("o-2"), fresh("o-3")
    goal(twice, 5, 5)
    corrected = goal(mended, "much", 5)
    assert rig.run(twice, twice, mended) == ["It is done."] * 3
    assert rig.external.count(f"{twice} 5") == 1
    assert [one["tag"] for one in rig.external.effects() if one["tag"].startswith(mended)] == [f"{mended} 5"]
    (asked,) = [one for one in rig.model.requests if one.goal == corrected and one.turn == 1]
    assert "refused, and nothing was called" in str(asked.body)
    assert "amount" in str(asked.body)
    (shown,) = asked.body["tools"]
    assert shown["function"]["description"].startswith("Refund an order.")
