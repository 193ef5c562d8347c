"""For OpenAI's Agents SDK: tools whose calls are Aetheris' (docs/adapters.md)."""

from typing import Any

from agents import FunctionTool, Tool
from agents.tool_context import ToolContext

from aetheris.sdk.adapters.run_tools import RunTools
from aetheris.sdk.call_port import CallableTool, shown_schema


def openai_tools(run: RunTools) -> list[Tool]:
    """The run's tools, for `Agent(tools=…)`. A run that is suspended ends the Runner with RunSuspended."""
    return [_tool(run, name, one) for name, one in run.shown.items()]


def _tool(run: RunTools, name: str, tool: CallableTool) -> FunctionTool:
    async def call(_context: ToolContext[Any], args: str) -> str:
        return (await run.acall(name, args)).text

    return FunctionTool(
        name=name,
        description=tool.description,
        params_json_schema=shown_schema(tool),
        on_invoke_tool=call,
        strict_json_schema=False,  # schemas stay as they are registered
    )
