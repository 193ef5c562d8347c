"""A refund agent on Microsoft's agent-framework: `python agent_framework_agent.py ORDER`, and again after a crash."""

import asyncio
import sys

from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient

from aetheris.sdk.adapters import RunTools
from aetheris.sdk.adapters.agent_framework import framework_tools


async def settle(order: str) -> str:
    """Run it again after a crash: what it has done is not done again."""
    async with RunTools(["refund", "send_mail"], run_id=f"refund {order}") as run:
        agent = Agent(OpenAIChatCompletionClient(model="gpt-5"), tools=framework_tools(run))
        return (await agent.run(f"Refund order {order}, and tell who has ordered.")).text


if __name__ == "__main__":
    print(asyncio.run(settle(sys.argv[1])))
