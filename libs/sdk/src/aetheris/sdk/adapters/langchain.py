"""For LangChain and LangGraph: a middleware by which an agent's tool calls are Aetheris' (docs/adapters.md)."""

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ToolCallRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command

from aetheris.sdk.adapters.run_tools import CallAnswer, RunTools
from aetheris.sdk.call_port import CallableTool, shown_schema


class LedgeredMiddleware(AgentMiddleware[Any, Any, Any]):
    """Has the run's tools called by Aetheris; all others are called as before.

    Args:
        run: the tools, within their `with`.
        shows: whether the model is shown them as they are registered. False for an agent that has tools of its own
            under their names: those are shown, and never run here.

    In a graph of your own: `ToolNode(m.tools, wrap_tool_call=m.wrap_tool_call, awrap_tool_call=m.awrap_tool_call)`.
    """

    def __init__(self, run: RunTools, *, shows: bool = True) -> None:
        super().__init__()
        self._run = run
        self.tools = [_shown(name, one) for name, one in run.shown.items()] if shows else []

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """As LangChain has it."""
        called = request.tool_call
        if called["name"] not in self._run.shown:
            return handler(request)
        return _message(request, self._run.call(called["name"], called["args"]))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        """As LangChain has it."""
        called = request.tool_call
        if called["name"] not in self._run.shown:
            return await handler(request)
        return _message(request, await self._run.acall(called["name"], called["args"]))


def _shown(name: str, tool: CallableTool) -> BaseTool:
    """What the model is shown; only the middleware calls it."""

    def call(**_args: Any) -> str:
        raise RuntimeError(f"{name} is called by Aetheris: give the graph the middleware's wrap_tool_call")

    return StructuredTool(name=name, description=tool.description or name, args_schema=shown_schema(tool), func=call)


def _message(request: ToolCallRequest, answer: CallAnswer) -> ToolMessage:
    return ToolMessage(
        answer.text,
        tool_call_id=request.tool_call["id"],
        name=request.tool_call["name"],
        status="error" if answer.failed else "success",
    )
