"""A refund agent on Google's ADK: `python google_adk_agent.py ORDER`, and again after a crash."""

import asyncio
import os
import sys

from google.adk.agents import Agent
from google.adk.runners import InMemoryRunner
from google.genai import types

from aetheris.sdk.adapters import RunTools
from aetheris.sdk.adapters.google_adk import adk_tools


async def settle(order: str) -> str:
    """Run it again after a crash: what it has done is not done again."""
    async with RunTools(["refund", "send_mail"], run_id=f"refund {order}") as run:
        model = os.environ.get("MODEL", "gemini-2.5-flash")
        runner = InMemoryRunner(Agent(name="refunds", model=model, tools=[*adk_tools(run)]))
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="ann")
        asked = types.UserContent(f"Refund order {order}, and tell who has ordered.")
        last = ""
        async for event in runner.run_async(user_id="ann", session_id=session.id, new_message=asked):
            if event.is_final_response() and event.content is not None:
                last = "".join(part.text or "" for part in event.content.parts or ())
    return last


if __name__ == "__main__":
    print(asyncio.run(settle(sys.argv[1])))
