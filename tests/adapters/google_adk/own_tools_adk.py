"""An agent on ADK that has tools of its own; prints what its model is told, and which of them ran."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import Agent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

from aetheris.sdk.adapters import RunTools
from aetheris.sdk.adapters.google_adk import before_tool

ran: list[str] = []


def refund(order_id: str, amount: int) -> str:
    """Its own."""
    ran.append(f"refund {order_id} {amount}")
    return "mine"


def greet(who: str) -> str:
    """Its own."""
    ran.append(f"greet {who}")
    return "hello"


class CallingLlm(BaseLlm):
    """Calls both, and is done."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse]:  # noqa: ARG002
        parts = llm_request.contents[-1].parts
        if told := [part.function_response.response["result"] for part in parts if part.function_response]:
            sys.stdout.write(json.dumps([told, ran]) + "\n")
            yield LlmResponse(content=types.ModelContent("done"))
        else:
            calls = [("refund", {"order_id": "o", "amount": 5}), ("greet", {"who": "ann"})]
            yield LlmResponse(
                content=types.ModelContent([types.Part.from_function_call(name=n, args=a) for n, a in calls])
            )


async def main() -> None:
    async with RunTools(["refund"], run_id="r") as run:
        agent = Agent(
            name="a", model=CallingLlm(model="m"), tools=[refund, greet], before_tool_callback=before_tool(run)
        )
        runner = InMemoryRunner(agent)
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="u")
        async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=types.UserContent("both")):
            pass


asyncio.run(main())
