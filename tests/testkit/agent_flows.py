"""Workflows in which agents on pydantic-ai call the tools of `tests.testkit.external_tools`; load both.

Environment: OPENAI_BASE_URL, OPENAI_API_KEY: of the model, for the tool that asks it.
"""

import asyncio

from pydantic_ai import Agent

from aetheris.sdk.workflows import WorkflowContext, workflow
from aetheris.sdk.workflows.agents import RecordedModel, model_tool
from tests.testkit.external_tools import poke_idempotent, poke_probeable, poke_pure

ask = model_tool("ask", "openai-chat:scripted")
agent = Agent(instructions="Poke what you are told to.")


@workflow(name="agent", tools=[ask, poke_idempotent, poke_probeable, poke_pure])
async def agent_flow(ctx: WorkflowContext, goal: str) -> str:
    """What an agent says in the end."""
    model, tools = RecordedModel(ctx, ask), ctx.toolset(["poke_*"])
    return (await agent.run(goal, model=model, toolsets=[tools])).output


@workflow(name="agents", tools=[poke_probeable], starts=[agent_flow])
async def agents_flow(ctx: WorkflowContext, tag: str, goals: list[str]) -> list[str]:
    """Several agents at once, each a job of its own, and an effect behind them."""
    said = await asyncio.gather(*[ctx.child(agent_flow, goal=goal) for goal in goals])
    await ctx.call(poke_probeable, tag=tag)
    return said
