"""For Microsoft's agent-framework: tools whose calls are Aetheris' (docs/adapters.md)."""

from typing import Any

from agent_framework import FunctionTool, MiddlewareFailure

from aetheris.sdk.adapters.run_tools import RunSuspended, RunTools
from aetheris.sdk.call_port import CallableTool, shown_schema


def framework_tools(run: RunTools) -> list[FunctionTool]:
    """The run's tools, for `Agent(tools=…)`."""
    return [_tool(run, name, one) for name, one in run.shown.items()]


def _tool(run: RunTools, name: str, tool: CallableTool) -> FunctionTool:
    async def call(**args: Any) -> str:
        try:
            return (await run.acall(name, args)).text
        except RunSuspended as suspended:  # of any other exception the model is told that something failed
            raise MiddlewareFailure(str(suspended)) from suspended

    return FunctionTool(name=name, description=tool.description, func=call, input_model=shown_schema(tool))
