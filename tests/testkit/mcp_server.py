"""An MCP server for tests, on the official SDK: `python -m tests.testkit.mcp_server FOLDER [PORT]`, on stdio or HTTP.

Each call that takes effect appends a line {"tool", "key", "args"} to FOLDER/effects.jsonl. A call with `hold` waits
after its effect for as long as FOLDER/hold exists. FOLDER/schema, where it exists, changes a tool's schema. `issue`
drops a request that it has seen.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import uvicorn
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

LOG = "effects.jsonl"
_STRING = {"type": "string"}
_HELD: dict[str, Any] = {
    "type": "object",
    "properties": {"text": _STRING, "hold": {"type": "boolean", "default": False}},
}
_ISSUE: dict[str, Any] = {
    "type": "object",
    "properties": {**_HELD["properties"], "request_id": {"$ref": "#/$defs/id"}, "number": {"type": "integer"}},
    "required": ["text", "request_id"],
    "additionalProperties": False,
    "$defs": {"id": {"type": "string", "minLength": 8}},
}


def _annotated(**hints: bool) -> types.ToolAnnotations:
    return types.ToolAnnotations.model_validate(hints, by_name=True)


class OfferedTools:
    """What the server offers, over a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def listed(self) -> list[types.Tool]:
        changed = (self._folder / "schema").exists()
        shifting = {"type": "object", "properties": {"text": {"type": "integer" if changed else "string"}}}
        return [
            types.Tool(name="look", input_schema=_HELD, annotations=_annotated(read_only_hint=True)),
            types.Tool(
                name="put",
                description="Says the same twice, once.",
                input_schema=_HELD,
                annotations=_annotated(idempotent_hint=True, destructive_hint=False),
            ),
            types.Tool(name="add", input_schema=_HELD, annotations=_annotated(destructive_hint=False)),
            types.Tool(name="act", input_schema=_HELD),
            types.Tool(name="issue", input_schema=_ISSUE, annotations=_annotated(destructive_hint=False)),
            types.Tool(name="fails", input_schema=_HELD, annotations=_annotated(destructive_hint=False)),
            types.Tool(name="refuses", input_schema=_HELD, annotations=_annotated(destructive_hint=False)),
            types.Tool(name="dies", input_schema=_HELD, annotations=_annotated(destructive_hint=False)),
            types.Tool(name="shifts", input_schema=shifting, annotations=_annotated(destructive_hint=False)),
            types.Tool(name="env", input_schema={"type": "object"}, annotations=_annotated(read_only_hint=True)),
            types.Tool(name="remote", input_schema={"type": "object", "$ref": "https://schemas.example.org/s.json"}),
            types.Tool(name="no name", input_schema=_HELD),
        ]

    async def call(self, name: str, args: dict[str, Any], meta: dict[str, Any]) -> types.CallToolResult:
        if name == "refuses":
            raise MCPError(types.INVALID_PARAMS, "never heard of it")
        if name == "env":
            return _said(os.environ.get("TOKEN", "none"))
        if name != "issue" or not self._has_seen(args["request_id"]):
            self._take_effect(name, args, meta)
        if name == "dies":
            os._exit(3)
        while args.get("hold") and (self._folder / "hold").exists():  # noqa: ASYNC110 - another process says when
            await asyncio.sleep(0.005)
        answer = _said(f"{name} {args.get('text')}")
        return answer.model_copy(update={"is_error": True}) if name == "fails" else answer

    def _has_seen(self, request_id: str) -> bool:
        return any(one["args"]["request_id"] == request_id for one in effects(self._folder, "issue"))

    def _take_effect(self, name: str, args: dict[str, Any], meta: dict[str, Any]) -> None:
        line = {"tool": name, "key": meta.get("io.aetheris/external-key"), "args": args}
        with (self._folder / LOG).open("a") as log:
            log.write(json.dumps(line) + "\n")


def _said(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)])


def effects(folder: Path, tool: str | None = None, text: str | None = None) -> list[dict[str, Any]]:
    """What took effect so far, in its order."""
    path = folder / LOG
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    return [one for one in found if tool in (None, one["tool"]) and text in (None, one["args"].get("text"))]


def server(folder: Path) -> Server[Any]:
    """The server, not yet listening."""
    tools = OfferedTools(folder)

    async def list_tools(
        _ctx: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools.listed())

    async def call_tool(ctx: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        return await tools.call(params.name, params.arguments or {}, dict(ctx.meta or {}))

    return Server("test", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def _on_stdio(folder: Path) -> None:
    made = server(folder)
    async with stdio_server() as (read, write):
        await made.run(read, write, made.create_initialization_options())


if __name__ == "__main__":
    home = Path(sys.argv[1])
    if len(sys.argv) > 2:
        uvicorn.run(server(home).streamable_http_app(), host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
    else:
        asyncio.run(_on_stdio(home))
