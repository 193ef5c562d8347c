"""An MCP server for tests that has more than tools: `python -m tests.testkit.mcp_rich_server FOLDER [PORT]`.

Resources, prompts, completion, logging; of its prompts `ask` has the client's model asked, `flood` sends notifications
without end, and `die` ends it. Its tools are those of `tests.testkit.mcp_server`.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from tests.testkit.mcp_server import server as plain

FLOOD = 20_000
Context = ServerRequestContext[Any]


def rich(folder: Path) -> Server[Any]:
    """The server, not yet listening."""
    made = plain(folder)

    async def resources(_ctx: Context, _params: types.PaginatedRequestParams) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(uri="test://one", name="one")])

    async def read(_ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text="first")])

    async def prompts(_ctx: Context, _params: types.PaginatedRequestParams) -> types.ListPromptsResult:
        return types.ListPromptsResult(
            prompts=[types.Prompt(name="ask"), types.Prompt(name="flood"), types.Prompt(name="die")]
        )

    async def prompt(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name == "die":
            os._exit(3)
        text = await (_flood(ctx) if params.name == "flood" else _ask(ctx))
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(messages=[message])

    async def complete(_ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=[f"{params.argument.value}!"]))

    made.add_request_handler("resources/list", types.PaginatedRequestParams, resources)
    made.add_request_handler("resources/read", types.ReadResourceRequestParams, read)
    made.add_request_handler("prompts/list", types.PaginatedRequestParams, prompts)
    made.add_request_handler("prompts/get", types.GetPromptRequestParams, prompt)
    made.add_request_handler("completion/complete", types.CompleteRequestParams, complete)
    return made


async def _ask(ctx: Context) -> str:
    asked = types.SamplingMessage(role="user", content=types.TextContent(text="who?"))
    answer = await ctx.session.create_message([asked], max_tokens=10)  # pyright: ignore[reportDeprecated]
    return answer.content.text if isinstance(answer.content, types.TextContent) else "?"


async def _flood(ctx: Context) -> str:
    for number in range(FLOOD):
        await ctx.session.send_log_message("error", f"line {number}")  # pyright: ignore[reportDeprecated]
    return "sent"


async def _on_stdio(folder: Path) -> None:
    made = rich(folder)
    async with stdio_server() as (read, write):
        await made.run(read, write, made.create_initialization_options())


if __name__ == "__main__":
    home = Path(sys.argv[1])
    if len(sys.argv) > 2:
        uvicorn.run(rich(home).streamable_http_app(), host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
    else:
        asyncio.run(_on_stdio(home))
