"""A refund agent on LangChain and LangGraph: `python langchain_agent.py ORDER`, and again after a crash."""

import asyncio
import sys

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI

from aetheris.sdk.adapters import RunTools
from aetheris.sdk.adapters.langchain import LedgeredMiddleware


async def settle(order: str) -> str:
    """Run it again after a crash: what it has done is not done again."""
    async with RunTools(["refund", "send_mail"], run_id=f"refund {order}") as run:
        agent = create_agent(ChatOpenAI(model="gpt-5"), middleware=[LedgeredMiddleware(run)])
        asked = HumanMessage(f"Refund order {order}, and tell who has ordered.")
        ended = await agent.ainvoke({"messages": [asked]})
    return ended["messages"][-1].text


if __name__ == "__main__":
    print(asyncio.run(settle(sys.argv[1])))
