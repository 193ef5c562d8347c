"""An agent on LangChain that has tools of its own; prints what its model is told, and which of them ran."""

import asyncio
import json
import sys
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool

from aetheris.sdk.adapters import RunTools
from aetheris.sdk.adapters.langchain import LedgeredMiddleware

ran: list[str] = []


@tool
def refund(order_id: str, amount: int) -> str:
    """Its own."""
    ran.append(f"refund {order_id} {amount}")
    return "mine"


@tool
def greet(who: str) -> str:
    """Its own."""
    ran.append(f"greet {who}")
    return "hello"


class CallingModel(GenericFakeChatModel):
    """Calls both, and is done."""

    def bind_tools(self, *_tools: Any, **_how: Any) -> "CallingModel":
        return self


def asked_model() -> CallingModel:
    calls = [("refund", {"order_id": "o", "amount": 5}), ("greet", {"who": "ann"})]
    first = AIMessage("", tool_calls=[{"name": name, "args": args, "id": name} for name, args in calls])
    return CallingModel(messages=iter([first, AIMessage("done")]))


with RunTools(["refund"], run_id="r") as run:
    middleware = [LedgeredMiddleware(run, shows=False)]
    asked = {"messages": [("user", "both")]}
    for blocks in (True, False):
        agent = create_agent(asked_model(), tools=[refund, greet], middleware=middleware)
        ended = agent.invoke(asked) if blocks else asyncio.run(agent.ainvoke(asked))
        told = [one.content for one in ended["messages"] if isinstance(one, ToolMessage)]
        sys.stdout.write(json.dumps([told, ran]) + "\n")
        ran.clear()
