"""For Strands Agents: tools whose calls are Aetheris' (docs/adapters.md)."""

from typing import Any

from strands.tools.tools import PythonAgentTool
from strands.types.tools import AgentTool, ToolResult, ToolUse

from aetheris.sdk.adapters.run_tools import RunTools
from aetheris.sdk.call_port import CallableTool, shown_schema


def strands_tools(run: RunTools) -> list[AgentTool]:
    """The run's tools, for `Agent(tools=…)`."""
    return [_tool(run, name, one) for name, one in run.shown.items()]


def _tool(run: RunTools, name: str, tool: CallableTool) -> AgentTool:
    async def call(use: ToolUse, **_state: Any) -> ToolResult:
        answer = await run.acall(name, use["input"])
        status = "error" if answer.failed else "success"
        return {"toolUseId": use["toolUseId"], "status": status, "content": [{"text": answer.text}]}

    schema = {"json": shown_schema(tool)}
    return PythonAgentTool(name, {"name": name, "description": tool.description or name, "inputSchema": schema}, call)
