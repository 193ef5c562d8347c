"""A refund agent on OpenAI's Agents SDK: `python openai_agents_agent.py ORDER`, and again after a crash."""

import asyncio
import sys

from agents import Agent, Runner, set_default_openai_api

from aetheris.sdk.adapters import RunTools
from aetheris.sdk.adapters.openai_agents import openai_tools

set_default_openai_api("chat_completions")  # which more providers speak than Responses


async def settle(order: str) -> str:
    """Run it again after a crash: what it has done is not done again."""
    async with RunTools(["refund", "send_mail"], run_id=f"refund {order}") as run:
        agent = Agent(name="refunds", model="gpt-5", tools=openai_tools(run))
        ended = await Runner.run(agent, f"Refund order {order}, and tell who has ordered.")
    return str(ended.final_output)


if __name__ == "__main__":
    print(asyncio.run(settle(sys.argv[1])))
