"""For Google's ADK: tools whose calls are Aetheris', or a callback that makes them so (docs/adapters.md)."""

from collections.abc import Awaitable, Callable
from typing import Any

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from aetheris.sdk.adapters.run_tools import CallAnswer, RunTools
from aetheris.sdk.call_port import CallableTool, shown_schema

BeforeTool = Callable[[BaseTool, dict[str, Any], ToolContext], Awaitable[dict[str, Any] | None]]
"""What an agent takes as its callback before a tool."""


class LedgeredTool(BaseTool):
    """One of a run's tools, as it is registered."""

    def __init__(self, run: RunTools, name: str, tool: CallableTool) -> None:
        super().__init__(name=name, description=tool.description or name)
        self._run = run
        self._schema = shown_schema(tool)

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:  # noqa: ARG002
        """As ADK has it."""
        return _told(await self._run.acall(self.name, args))


def adk_tools(run: RunTools) -> list[BaseTool]:
    """The run's tools, for `Agent(tools=…)`."""
    return [LedgeredTool(run, name, one) for name, one in run.shown.items()]


def before_tool(run: RunTools) -> BeforeTool:
    """A callback before a tool, for an agent that has tools of its own under the names of the run's.

    Those are shown, and never run here; all others are run as before.
    """

    async def call(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any] | None:  # noqa: ARG001
        return _told(await run.acall(tool.name, args)) if tool.name in run.shown else None

    return call


def _told(answer: CallAnswer) -> dict[str, Any]:
    return {"error" if answer.failed else "result": answer.text}
