"""The README's agent, as it stands there, on a scripted model and a stand-in for the gateway (docs/agents.md)."""

import os
import re
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import ModelRetry
from pydantic_ai.exceptions import ToolFailed

from aetheris.sdk.equal_calls import MOST_TRIES, PersonalTool
from aetheris.sdk.pydantic_ai import LedgeredToolset, NoSuchTool
from aetheris.testing.scripted_model import ScriptedModel, running_model
from tests.testkit.external_server import until
from tests.testkit.pages import readme_agent
from tests.testkit.played_gateway import TOOLS, PlayedGateway, running_played_gateway

README = Path(__file__).parents[3] / "README.md"


def call(amount: Any = 5) -> dict[str, Any]:
    return {"calls": [{"tool": "refund", "args": {"order_id": "o", "amount": amount}}]}


DONE = {"text": "It is done."}
SCRIPT = {
    "Refund order o-1.": [call(), DONE],
    "Refund order o-2.": [call(), call(), DONE],
    "Refund order o-3.": [call("much"), call(), DONE],
    "Refund order o-4.": [call(), DONE],
}


@dataclass(frozen=True)
class ReadmeAgent:
    """The agent of the README, on a gateway and a model that are played."""

    gateway: PlayedGateway
    model: ScriptedModel
    env: dict[str, str]
    script: Path

    def start(self, order: str) -> "subprocess.Popen[str]":
        argv = [sys.executable, str(self.script), order]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env)

    def run(self, order: str) -> None:
        with self.start(order) as agent:
            out, errors = agent.communicate(timeout=60)
        assert (agent.returncode, out.strip()) == (0, "It is done."), errors


@pytest.fixture
def readme(tmp_path: Path) -> Generator[ReadmeAgent]:
    script = tmp_path / "agent.py"
    script.write_text(f"{readme_agent()}\n\nimport asyncio, sys\nprint(asyncio.run(settle(sys.argv[1])))\n")
    with running_played_gateway() as gateway, running_model(SCRIPT) as (model, url):
        env = {
            **os.environ,
            "AETHERIS_URL": gateway.url,
            "AETHERIS_TOKEN": "t",
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "none",
        }
        yield ReadmeAgent(gateway, model, env, script)


def test_what_an_agent_has_done_is_not_done_again(readme: ReadmeAgent) -> None:
    with readme.start("o-1") as agent:
        until(lambda: len(readme.gateway.effects) == 1, 30)
        agent.kill()
    readme.gateway.released.set()
    readme.run("o-1")
    assert len(readme.gateway.effects) == 1
    assert readme.gateway.sessions == {"refund o-1"}
    assert readme.model.calls_for("Refund order o-1.") == [0, 0, 1]
    readme.run("o-2")
    readme.run("o-2")
    assert [one["occurrence"] for one in readme.gateway.effects] == [1, 1], "what a model says again is no second call"


def test_a_model_is_told_what_came_of_its_call(readme: ReadmeAgent) -> None:
    readme.gateway.released.set()
    readme.run("o-3")
    assert len(readme.gateway.effects) == 1
    reported = {request.turn: str(request.body["messages"][-1]) for request in readme.model.requests}
    assert "refused, and nothing was called" in reported[1]
    assert "args/amount" in reported[1]
    assert "refunded" in reported[2]
    (shown,) = readme.model.requests[0].body["tools"]
    assert shown["function"]["description"] == "Refund an order."
    readme.gateway.fails = {"state": "failed", "reason": "no try is left", "effect": "possible"}
    readme.run("o-4")
    assert "no try is left. Nobody knows whether it took effect." in str(readme.model.requests[-1].body["messages"][-1])


async def test_only_what_is_asked_for_is_shown_under_names_that_providers_take() -> None:
    with running_played_gateway() as gateway:
        every = ["refund", "mail_send", "look", "odd"]
        for patterns, shown in ((["mail.*"], ["mail_send"]), ([], []), (["*"], every)):
            async with LedgeredToolset(patterns, run_id="r", url=gateway.url, token="t") as tools:  # noqa: S106
                assert list(await tools.get_tools(None)) == shown  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="run_id is empty"):
        await LedgeredToolset(["*"], run_id=lambda _: "").for_run(None)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ({"tools": ["refund", "refnd"]}, "tools: no tool refnd is there; did you mean refund?"),
        ({"tools": ["nothing"]}, "tools: no tool nothing is there; there are look, mail.send, odd, refund"),
        ({"tools": ["shop.*"]}, r"tools: no tool shop.* is there; there are look"),
        ({"tools": ["refund"], "repeats": ["refnud"]}, "repeats: no tool refnud is there; did you mean refund?"),
        ({"tools": ["look"], "repeats": ["refund"]}, "repeats: no tool refund is there; there are look"),
    ],
)
async def test_a_tool_that_does_not_exist_is_named_before_anything_is_called(
    gateway: PlayedGateway, named: dict[str, Any], text: str
) -> None:
    async with LedgeredToolset(**named, run_id="r", url=gateway.url, token="t") as tools:  # noqa: S106
        with pytest.raises(NoSuchTool, match=re.escape(text)):
            await tools.get_tools(None)  # pyright: ignore[reportArgumentType]
    assert gateway.effects == []


async def test_a_tool_with_personal_arguments_is_refused_by_name_before_a_model_sees_it(
    gateway: PlayedGateway,
) -> None:
    email = {"type": "string", "x-personal": "/who"}
    schema = {"type": "object", "properties": {"who": {"type": "string"}, "email": email}}
    items = {"type": "object", "properties": {"all": {"type": "array", "items": email}}}
    for personal in (schema, items):
        gateway.tools = [*TOOLS[:2], {"name": "mail.invite", "schema": personal}]
        async with LedgeredToolset(["mail.*"], run_id="r", url=gateway.url, token="t") as tools:  # noqa: S106
            with pytest.raises(PersonalTool, match=r"mail\.invite: x-personal isn't served"):
                await tools.get_tools(None)  # pyright: ignore[reportArgumentType]
    assert gateway.effects == []


def test_an_agent_whose_tool_does_not_exist_asks_no_model(readme: ReadmeAgent) -> None:
    readme.script.write_text(readme.script.read_text().replace('"refund"', '"refnud"'))
    with readme.start("o-1") as agent:
        _, errors = agent.communicate(timeout=60)
    assert (agent.returncode, "did you mean refund?" in errors) == (1, True)
    assert (readme.model.requests, readme.gateway.effects) == ([], [])


class AgentRun:
    """A run of an agent: what its model calls."""

    def __init__(self, gateway: PlayedGateway, **how: Any) -> None:
        self.tools = LedgeredToolset(["*"], run_id="r", url=gateway.url, token="t", **how)  # noqa: S106

    async def __aenter__(self) -> "AgentRun":
        await self.tools.__aenter__()
        self.shown = await self.tools.get_tools(None)  # pyright: ignore[reportArgumentType]
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.tools.__aexit__(*error)

    async def call(self, tool: str = "refund", **args: Any) -> Any:
        """What the model is given, or told of a failure."""
        try:
            return await self.tools.call_tool(tool, {"amount": 5} | args, None, self.shown[tool])  # pyright: ignore[reportArgumentType]
        except ToolFailed as failed:
            return failed.message


@pytest.fixture
def gateway() -> Generator[PlayedGateway]:
    with running_played_gateway() as running:
        running.released.set()
        yield running


SURELY: dict[str, Any] = {"reason": "refused", "effect": "none"}
UNSURE: dict[str, Any] = {"reason": "no try is left", "effect": "possible", "via": "ledger"}


async def test_an_equal_call_joins_and_only_a_sure_failure_lets_it_be_made_again(gateway: PlayedGateway) -> None:
    async with AgentRun(gateway) as run:
        gateway.fails = SURELY
        assert "may be called again" in await run.call()
        gateway.fails = None
        assert await run.call() == await run.call() == {"refunded": 5}
        assert len(gateway.effects) == 2
        gateway.fails = UNSURE
        for _ in range(3):
            assert "A human decides" in await run.call(order_id="unsure")
        gateway.fails = {"reason": "took effect in part", "effect": "confirmed", "via": "executor"}
        for _ in range(2):
            assert "a part of it" in await run.call(order_id="part")
        gateway.fails = UNSURE | {"via": "human"}
        assert "may be called again" in await run.call(order_id="looked into")
        gateway.fails = None
        assert await run.call(order_id="looked into") == {"refunded": 5}
    made = len(gateway.effects)
    async with AgentRun(gateway) as run:
        assert await run.call() == {"refunded": 5}, "the run that starts again finds what it did"
        assert "A human decides" in await run.call(order_id="unsure")
    assert (made, len(gateway.effects)) == (6, 6)


async def test_a_call_that_always_fails_is_not_made_without_end(gateway: PlayedGateway) -> None:
    gateway.fails = SURELY
    async with AgentRun(gateway) as run:
        reported = [await run.call() for _ in range(MOST_TRIES + 3)]
    assert len(gateway.effects) == MOST_TRIES
    assert [one for one in reported if "not made again" in one] == reported[MOST_TRIES:]


async def test_what_a_tool_does_not_look_at_makes_no_other_call(gateway: PlayedGateway) -> None:
    async with AgentRun(gateway) as run:
        first = await run.call("mail_send", to="a", date="monday")
        assert await run.call("mail_send", to="a", date="tuesday") == first
        assert await run.call("mail_send", date="sunday", to="a") == first
        await run.call("mail_send", to="b", date="monday")
    assert len(gateway.effects) == 2


async def test_what_only_reads_is_read_anew_and_found_again_in_its_order(gateway: PlayedGateway) -> None:
    for _ in range(2):
        async with AgentRun(gateway) as run:
            for _ in range(MOST_TRIES + 2):
                assert await run.call("look") == {"refunded": 5}
    assert len(gateway.effects) == MOST_TRIES + 2


async def test_a_repeat_names_the_call_that_it_repeats(gateway: PlayedGateway) -> None:
    async with AgentRun(gateway, repeats=["refund"]) as run:
        assert "repeat_of" in run.shown["refund"].tool_def.parameters_json_schema["properties"]
        assert "repeat_of" not in str(run.shown["mail_send"].tool_def.parameters_json_schema)
        for habit in (True, "x", "again", 1, ["x"], {"id": "x"}):
            with pytest.raises(ModelRetry, match="nothing was called"):
                await run.call(repeat_of=habit)
        assert gateway.effects == []
        assert await run.call(repeat_of=None) == {"refunded": 5}
        again = await run.call(repeat_of="")
        assert (again["result"], len(gateway.effects)) == ({"refunded": 5}, 1)
        other = await run.call(order_id="other")
        assert other == {"refunded": 5}
        with pytest.raises(ModelRetry, match="nothing was called"):
            await run.call(order_id="other", repeat_of=again["call_id"])
        assert await run.call(repeat_of=again["call_id"]) == {"refunded": 5}
        second = await run.call(repeat_of=again["call_id"])
        assert second["call_id"] != again["call_id"]
        assert (await run.call())["call_id"] == again["call_id"]
        gateway.fails = SURELY
        assert "may be called again" in await run.call(repeat_of=second["call_id"])
        gateway.fails = None
        assert await run.call(repeat_of=second["call_id"]) == {"refunded": 5}
    async with AgentRun(gateway, repeats=["refund"]) as run:
        third = await run.call(repeat_of=second["call_id"])
        assert "call_id" in third, "a run that starts again repeats nothing once more"
        assert await run.call(repeat_of=third["call_id"]) == {"refunded": 5}
    assert [one["occurrence"] for one in gateway.effects if "order_id" not in one["args"]] == [1, 2, 3, 3, 4]


async def test_a_tool_with_an_argument_of_that_name_may_not_repeat(gateway: PlayedGateway) -> None:
    with pytest.raises(ValueError, match="odd has an argument repeat_of of its own"):
        await AgentRun(gateway, repeats=["odd"]).__aenter__()
    async with AgentRun(gateway) as run:
        await run.call("odd", repeat_of=True)
    assert gateway.effects[0]["args"] == {"amount": 5, "repeat_of": True}
