"""An agent on pydantic-ai within a workflow: whatever dies, its model is asked once, and its tools are called once."""

import asyncio
import re
from collections import Counter
from typing import Any

import pytest
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.messages import ModelRequest, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from aetheris.sdk import ToolContext, tool
from aetheris.sdk.outcomes import Failed
from aetheris.sdk.workflows import Misuse, OutcomeUnknown, ToolFailed, WorkflowContext, workflow
from aetheris.sdk.workflows.agents import RecordedModel, model_tool
from aetheris.sdk.workflows.model_calls import MOST_TRIES
from aetheris.testing import NODE, MemorySystem, crash_after, duplicate_delivery, run_workflow
from tests.testkit.system import REPOSITORY

pytestmark = pytest.mark.timeout(300)
MADE: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    MADE.clear()


@tool(name="bank.refund", effect_class="idempotent")
async def refund(ctx: ToolContext, order: str, amount: int) -> str:
    """Pay it back."""
    MADE[ctx.external_key] += 1
    return f"refunded {amount} of {order}"


@tool(effect_class="pure")
async def look(order: str) -> int:
    """What was paid."""
    MADE["look"] += 1
    return len(order) + MADE["look"] - MADE["look"]


@tool(effect_class="idempotent")
async def refuses(order: str) -> None:
    MADE["refuses"] += 1
    raise Failed(f"no {order}")


@tool(effect_class="opaque", irreversible=False)
def post(text: str) -> str:
    MADE["post"] += 1
    return text


def answers(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A model that looks, refunds twice the same, tries what is refused, and says what it was told."""
    MADE["asked"] += 1
    assert {one.name for one in info.function_tools} == {"bank_refund", "look", "refuses"}
    told = sum(len(one.parts) for one in messages if isinstance(one, ModelRequest))
    returned = [part for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]
    wanted = [
        [ToolCallPart("look", {"order": "o-1"}, "1")],
        [
            ToolCallPart("bank_refund", {"order": "o-1", "amount": 3}, "2"),
            ToolCallPart("refuses", {"order": "o-1"}, "3"),
        ],
        [ToolCallPart("bank_refund", {"order": "o-1", "amount": "many"}, "4")],
        [ToolCallPart("bank_refund", {"amount": 3, "order": "o-1"}, "5")],
    ]
    turn = sum(isinstance(one, ModelResponse) for one in messages)
    if turn < len(wanted):
        return ModelResponse(parts=wanted[turn])
    return ModelResponse(parts=[TextPart(f"{returned[0].content} {returned[-1].content} of {told}")])


ask = model_tool("ask", FunctionModel(answers))
agent = Agent(instructions="Settle it.")


@workflow(tools=[ask, refund, look, refuses])
async def settle(ctx: WorkflowContext, order: str) -> str:
    tools = ctx.toolset(["bank.*", "look", "refuses"])
    done = await agent.run(f"Refund {order}.", model=RecordedModel(ctx, ask), toolsets=[tools])
    return done.output


def test_killed_anywhere_its_model_says_the_same_and_its_tools_act_once() -> None:
    job = run_workflow(settle, {"order": "o-1"}, crash="everywhere")
    assert (job.status, job.why) == ("completed", None)
    assert job.result(NODE).startswith("3 refunded 3 of o-1 of ")
    assert (job.calls("bank.refund"), job.calls("look"), job.calls("ask")) == (1, 1, 5)


def test_in_a_log_that_has_everything_twice_it_acts_once() -> None:
    job = run_workflow(settle, {"order": "o-1"}, faults=[duplicate_delivery()])
    assert (job.calls("bank.refund"), job.calls("ask")) == (1, 5)


def made_by(body: Any, *tools: Any, **options: Any) -> Any:
    flow = workflow(name="flow", tools=tools)(body)
    return run_workflow(flow, {}, **options)


def test_an_equal_call_of_a_model_is_the_same_while_it_is_open_and_when_it_succeeded() -> None:
    async def body(ctx: WorkflowContext) -> list[str]:
        (one,) = ctx.model_tools(["bank.*"])
        args = {"order": "o", "amount": 1}
        both = await asyncio.gather(one.call(args), one.call(dict(reversed(args.items()))))
        return [*both, await one.call(args), await ctx.model_tools(["bank.refund"])[0].call(args)]

    job = made_by(body, refund, crash="everywhere")
    assert (job.result(NODE), job.calls("bank.refund")) == (["refunded 1 of o"] * 4, 1)


def test_what_surely_failed_is_made_again_ten_times_at_most() -> None:
    async def body(ctx: WorkflowContext) -> int:
        (one,) = ctx.model_tools(["refuses"])
        failed = 0
        for _ in range(MOST_TRIES + 5):
            try:
                await one.call({"order": "o"})
            except ToolFailed:
                failed += 1
        return failed

    job = made_by(body, refuses, crash="everywhere")
    assert (job.result(NODE), job.calls("refuses")) == (MOST_TRIES + 5, MOST_TRIES)


def test_what_nobody_knows_of_is_not_made_again() -> None:
    async def body(ctx: WorkflowContext) -> int:
        (one,) = ctx.model_tools(["post"])
        unknown = 0
        for _ in range(3):
            try:
                await one.call({"text": "hello"})
            except OutcomeUnknown:
                unknown += 1
        return unknown

    system = MemorySystem(workflow(name="flow", tools=[post])(body), post)
    plan = {"nodes": [{"id": NODE, "kind": "workflow", "tool": "flow"}]}
    job = system.run(plan, options={"on_in_doubt": "fail"}, faults=[crash_after(post)])
    assert (job.result(NODE), MADE["post"]) == (3, 1)


def test_what_reads_is_read_each_time() -> None:
    async def body(ctx: WorkflowContext) -> list[int]:
        (one,) = ctx.model_tools(["look"])
        return [await one.call({"order": "o"}) for _ in range(3)]

    assert made_by(body, look, crash="everywhere").calls("look") == 3


@pytest.mark.parametrize("patterns", [["none"], ["by_name"]])
def test_what_can_t_be_shown_to_a_model_is_misuse(patterns: list[str]) -> None:
    async def body(ctx: WorkflowContext) -> bool:
        try:
            ctx.toolset(patterns)
        except Misuse:
            return True
        return False

    @tool(name="by_name", effect_class="pure")
    def named() -> None:
        """By its name alone."""

    flow = workflow(name="flow", tools=["by_name"])(body)
    assert run_workflow(flow, {}, tools=[named]).result(NODE) is True


def test_the_page_s_agent_refunds_once() -> None:
    text = (REPOSITORY / "docs" / "workflows.md").read_text()
    (code,) = re.findall(r"```python\n# agents\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"__name__": "shop"}
    exec(code, names)  # noqa: S102  our own page

    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("refund", {"order": "o-1", "amount": 7}, "1")])
        return ModelResponse(parts=[TextPart("done")])

    asks = model_tool("ask", FunctionModel(model)).function
    job = run_workflow(names["settle"], {"order": "o-1"}, fakes={names["ask"]: asks}, crash="everywhere")
    assert (job.result(NODE), job.calls("refund"), job.calls("ask")) == ("done", 1, 2)
