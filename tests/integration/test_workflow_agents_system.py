"""Agents within workflows, on the whole system: killed again and again, each acts once, and its proof holds."""

import random
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

from aetheris.protocol.messages.begun import child_job_id
from aetheris.testing.scripted_model import running_model
from tests.testkit.agents import AgentsRig
from tests.testkit.attempts import fresh
from tests.testkit.external_flows import flow_node
from tests.testkit.external_server import until
from tests.testkit.rig import running_rig
from tests.testkit.system import ENDED

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(3600)]

MODULES = "tests.testkit.external_tools,tests.testkit.agent_flows"
AGENTS, TURNS = 3, 8
SERVICES = ("executor-0", "ledger-0", "planner-0", "executor-0", "gateway-0")
SCRIPT: dict[str, list[dict[str, Any]]] = {}


def call(tool: str, tag: str, **more: Any) -> dict[str, Any]:
    return {"tool": tool, "args": {"tag": tag, **more}}


def goal(tag: str) -> str:
    """What an agent is asked to do: each turn pokes twice, reads, and says the turn before once more."""
    turns = [
        {
            "delay_s": 0.1,
            "calls": [
                call("poke_probeable", f"{tag}-{turn}", delay_s=0.1),
                call("poke_idempotent", f"{tag}-{turn}-b", delay_s=0.1),
                call("poke_pure", f"{tag}-{turn}"),
                *([call("poke_probeable", f"{tag}-{turn - 1}", delay_s=0.1)] if turn else []),
            ],
        }
        for turn in range(TURNS)
    ]
    SCRIPT[tag] = [*turns, {"text": f"{tag} is poked"}]
    return tag


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[AgentsRig]:
    folder = tmp_path_factory.mktemp("workflow-agents")
    with running_model(SCRIPT) as (model, url):
        env = {"AETHERIS_TOOLS": MODULES, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
        with running_rig(folder, env | {"AETHERIS_WORKFLOW_IDLE_S": "2"}) as rig:
            rig.system.wait_ready()
            yield AgentsRig(rig.system, rig.external, model, folder)


@pytest.mark.parametrize(("kills", "flows"), [(5, 2), pytest.param(50, 4, marks=pytest.mark.full)])
def test_killed_again_and_again_each_agent_acts_once_and_is_told_what_its_model_said(
    rig: AgentsRig, kills: int, flows: int
) -> None:
    chance = random.Random(kills)  # noqa: S311
    done: dict[str, tuple[str, list[str]]] = {}

    def still_open() -> list[str]:
        return [job for job, _ in done.values() if rig.system.job(job).get("status") not in ENDED]

    for kill in range(kills):
        for _ in range(flows - len(still_open())):
            tag = fresh("agents")
            goals = [goal(f"{tag}-{number}") for number in range(AGENTS)]
            done[tag] = rig.system.submit(flow_node("w", "agents", tag=tag, goals=goals)), goals
        seen = rig.external.count() + chance.randint(1, flows * AGENTS)
        until(lambda seen=seen: rig.external.count() >= seen or not still_open(), 180)
        rig.system.kill(SERVICES[kill % len(SERVICES)])
        rig.system.wait_ready(120)
    rig.system.wait_ended([job for job, _ in done.values()], 600)
    asked = Counter((one.goal, one.turn) for one in rig.model.requests)
    for tag, (job, goals) in done.items():
        view = rig.system.job(job)
        assert (view["status"], view.get("result")) == ("completed", {"w": [f"{one} is poked" for one in goals]})
        rig.system.verified(job)
        assert rig.external.count(tag) == 1
        children = [child_job_id(job, node) for node in begun_by(rig, job)]
        assert len(children) == AGENTS
        for child in children:
            rig.system.verified(child)
            answers = [
                one["idempotency_key"]
                for one in rig.system.data_of(child, "tool_invocation_started")
                if one["tool_name"] == "ask"
            ]
            assert len(set(answers)) == TURNS + 1, "whoever takes over is told what was said, and asks nothing else"
        for one in goals:
            assert {turn for told, turn in asked if told == one} == set(range(TURNS + 1))
            for turn in range(TURNS):
                effects = rig.external.effects(tag=f"{one}-{turn}")
                assert len(effects) == 1, "the model says it twice, and it happens once"
                assert len({effect["key"] for effect in rig.external.effects(tag=f"{one}-{turn}-b")}) == 1
    again = sum(asked.values()) - len(asked)
    print(f"{kills} kills, {len(done) * AGENTS} agents, {len(asked)} answers, asked again {again} times")  # noqa: T201


def begun_by(rig: AgentsRig, job: str) -> list[str]:
    """The nodes by which a job has begun others."""
    starts = rig.system.data_of(job, "call_planned")
    return [*dict.fromkeys(one["node_id"] for one in starts if one["entry"].get("tool") == "jobs.start")]
