"""A scripted model that repeats itself, on an outside server that deduplicates nothing (docs/agents.md)."""

import asyncio
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from mcp import Client
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from aetheris.cli import local
from aetheris.sdk.pydantic_ai import LedgeredToolset, StillRunning
from aetheris.testing.scripted_model import ScriptedModel, running_model
from tests.testkit.attempts import fresh
from tests.testkit.mcp_client import agent, asked
from tests.testkit.rig import Rig, running_rig

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

SCRIPT: dict[str, list[dict[str, Any]]] = {}
DONE = {"text": "It is done."}


@dataclass(frozen=True)
class ToolsetRig(Rig):
    """What agents ask is `model`."""

    model: ScriptedModel
    model_url: str

    async def run(self, tag: str, answers: Sequence[dict[str, Any]], **how: Any) -> list[Any]:
        """A run of an agent whose model gives these answers, with every message that it was sent in the end."""
        SCRIPT[tag] = [*answers, DONE]
        where = local.target(self.system.data)
        tools = LedgeredToolset(["*"], run_id=tag, url=where.url, token=where.token, **how)
        async with AsyncOpenAI(base_url=self.model_url, api_key="none") as model:
            provider = OpenAIProvider(openai_client=model)
            asking = Agent(OpenAIChatModel("scripted", provider=provider), toolsets=[tools])
            assert (await asking.run(tag)).output == "It is done."
        (last, *_) = [one for one in reversed(self.model.requests) if one.goal == tag]
        return [one["content"] for one in last.body["messages"] if one["role"] == "tool"]

    def jobs(self) -> list[dict[str, Any]]:
        return self.system.api.get("/jobs", params={"limit": 200}).json()["jobs"]

    def parked(self) -> dict[str, Any]:
        """The step that was parked last, with its job's id."""
        shown = (self.system.job(one["job_id"]) for one in self.jobs() if one["status"] == "waiting")
        return next({**step, "job_id": job["job_id"]} for job in shown for step in job["steps"] if step["attempts"])


def call(tool: str, tag: str, **more: Any) -> dict[str, Any]:
    return {"tool": tool, "args": {"tag": tag, **more}}


def turn(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"calls": list(calls)}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[ToolsetRig]:
    env = {"AETHERIS_TOOLS": "tests.testkit.lossy_tools"}
    with running_model(SCRIPT) as (model, url), running_rig(tmp_path_factory.mktemp("equal"), env) as rig:
        yield ToolsetRig(rig.system, rig.external, model, url)


async def test_what_succeeded_is_not_done_again(rig: ToolsetRig) -> None:
    tag = fresh("success")
    again = turn(call("steady", tag))
    reported = await rig.run(tag, [again, again, turn(call("steady", tag), call("steady", tag))])
    assert reported == [reported[0]] * 4
    assert tag in reported[0]
    assert await rig.run(tag, [again]) == reported[:1], "nor by the run that starts again"
    assert rig.external.count(tag) == 1


async def test_what_nobody_is_sure_of_is_not_done_again(rig: ToolsetRig) -> None:
    tag = fresh("late")
    held = rig.external.hold("late")
    again = turn(call("late", tag))
    try:
        reported = await rig.run(tag, [again, again, again])
    finally:
        held.unlink()
    assert all("A human decides" in one for one in reported)
    await rig.run(tag, [again])
    assert rig.external.count(tag) == 1


async def test_what_surely_failed_is_called_again(rig: ToolsetRig) -> None:
    tag = fresh("refused")
    before = len(rig.jobs())
    reported = await rig.run(tag, [turn(call("refuse", tag))] * 3)
    assert all("may be called again" in one for one in reported)
    assert len(rig.jobs()) - before == 3


async def test_what_is_under_way_is_joined(rig: ToolsetRig) -> None:
    tag = fresh("flight")
    held = rig.external.hold("steady")
    both = turn(call("steady", tag), call("steady", tag))
    try:
        running = [asyncio.create_task(rig.run(tag, [both])) for _ in range(2)]
        await asyncio.to_thread(rig.external.wait_for, 1, tag, 60)
    finally:
        held.unlink()
    assert len({str(reported) for reported in await asyncio.gather(*running)}) == 1
    assert rig.external.count(tag) == 1


@pytest.mark.parametrize("verdict", ["happened", "not_executed"])
async def test_what_is_parked_waits_for_its_human(rig: ToolsetRig, verdict: str) -> None:
    tag = fresh(f"parked-{verdict}")
    again = turn(call("lose", tag))
    for _ in range(2):
        with pytest.raises(StillRunning):
            await rig.run(tag, [again, again], patience_s=3)
    assert rig.external.count(tag) == 1
    step = await asyncio.to_thread(rig.parked)
    answer = await asyncio.to_thread(
        rig.system.resolve, step["job_id"], step["node_id"], verdict, "I looked", result={"seen": tag}
    )
    assert answer.status_code in (200, 202), answer.text
    await asyncio.to_thread(rig.system.wait_ended, [step["job_id"]])
    if verdict == "happened":
        assert all("seen" in one for one in await rig.run(tag, [again, again]))
        assert rig.external.count(tag) == 1
    else:
        with pytest.raises(StillRunning):
            await rig.run(tag, [again], patience_s=3)
        assert rig.external.count(tag) == 2, "a human found that the first one was not executed"


async def test_a_habit_repeats_nothing_and_a_repeat_names_its_call(rig: ToolsetRig) -> None:
    tag = fresh("repeat")
    plain, habit = turn(call("steady", tag)), turn(call("steady", tag, repeat_of="true"))
    reported = await rig.run(tag, [plain, habit, plain], repeats=["steady"])
    assert "nothing was called" in reported[1]
    assert rig.external.count(tag) == 1
    (call_id,) = [one.partition('"call_id":"')[2].partition('"')[0] for one in reported[2:]]
    for _ in range(2):
        await rig.run(tag, [turn(call("steady", tag, repeat_of=call_id))] * 2, repeats=["steady"])
    assert rig.external.count(tag) == 2


async def submitted(client: Client, name: str, plan: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What a model is told of a submission, and how its job ends."""
    reported = await asked(client, "submit", idempotency_key=name, plan=plan, **more)
    return reported | {"ended": await asked(client, "watch", job_id=reported["job_id"], wait_s=60)}


def plan(tool: str, tag: str, node: str = "a", **more: Any) -> dict[str, Any]:
    return {"nodes": [{"id": node, "tool": tool, "args": {"tag": tag}, **more}]}


async def test_a_submission_over_mcp_that_means_the_same_is_the_same(rig: ToolsetRig) -> None:
    tag, late = fresh("mcp"), fresh("mcp-late")
    held = rig.external.hold("late")
    try:
        async with agent(rig.system.data) as client:
            first = await submitted(client, fresh("k"), plan("steady", tag))
            assert first["ended"]["status"] == "completed"
            for other in (plan("steady", tag), plan("steady", tag, "b"), plan("steady", tag, occurrence=2)):
                reported = await submitted(client, fresh("k"), other)
                assert (reported["job_id"], "nothing was started" in reported["note"]) == (first["job_id"], True)
            unsure = await submitted(client, fresh("k"), plan("late", late))
            assert unsure["ended"]["status"] == "failed"
            assert "a human decides" in (await submitted(client, fresh("k"), plan("late", late)))["note"]
            failed = [(await submitted(client, fresh("k"), plan("refuse", tag)))["job_id"] for _ in range(3)]
            assert len(set(failed)) == 3
            name = fresh("k")
            await submitted(client, name, plan("steady", fresh("k")))
            other = {"idempotency_key": name, "plan": plan("steady", fresh("k"))}
            assert (await client.call_tool("submit", other)).is_error
        async with agent(rig.system.data) as client:
            reported = await submitted(client, fresh("k"), plan("steady", tag))
            assert reported["job_id"] == first["job_id"], "also by a server that was started again"
            assert (await submitted(client, fresh("k"), plan("late", late)))["job_id"] == unsure["job_id"]
    finally:
        held.unlink()
    assert (rig.external.count(tag), rig.external.count(late)) == (1, 1)


async def test_a_run_of_its_own_or_a_repeat_does_the_same_again_over_mcp(rig: ToolsetRig) -> None:
    tag = fresh("mcp-again")
    for run in ("monday", "monday", "tuesday"):
        async with agent(rig.system.data, "--run", f"{tag} {run}") as client:
            await submitted(client, fresh("k"), plan("steady", tag))
    assert rig.external.count(tag) == 2
    async with agent(rig.system.data, "--run", f"{tag} monday", "--repeats") as client:
        first = await submitted(client, fresh("k"), plan("steady", tag))
        habit = {"idempotency_key": fresh("k"), "plan": plan("steady", tag), "repeat_of": "true"}
        assert (await client.call_tool("submit", habit)).is_error
        assert rig.external.count(tag) == 2
        reported = [
            await submitted(client, fresh("k"), plan("steady", tag), repeat_of=first["job_id"]) for _ in range(2)
        ]
        assert reported[0]["job_id"] == reported[1]["job_id"] != first["job_id"]
    assert rig.external.count(tag) == 3
