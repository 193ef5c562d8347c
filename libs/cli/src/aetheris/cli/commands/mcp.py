"""`aetheris mcp`: the gateway as an MCP server on stdin and stdout."""

import asyncio
from typing import Annotated

import httpx
import typer

from aetheris.cli import local
from aetheris.cli.console import errors_as_exits
from aetheris.sdk.client import AsyncClient


def mcp(
    *,
    approve_as: Annotated[
        str | None, typer.Option(help="Offer a tool that approves, in the name of this token; else none is offered.")
    ] = None,
    data: local.Data = local.DEFAULT_DATA,
) -> None:
    """Serve MCP on stdin and stdout: submit, watch and verify jobs, for agents that live elsewhere."""
    with errors_as_exits(as_json=False):
        own = local.target(data)
        approver = local.target(data, approve_as) if approve_as is not None else None
    asyncio.run(_serve(own, approver))


async def _serve(own: local.Target, approver: local.Target | None) -> None:
    from aetheris.cli.mcp_server import server  # noqa: PLC0415 - the SDK is imported by nobody else

    async with _client(own) as client:
        if approver is None:
            await server(client).run_stdio_async()
        else:
            async with _client(approver) as other:
                await server(client, other).run_stdio_async()


def _client(where: local.Target) -> AsyncClient:
    transport = httpx.AsyncHTTPTransport() if where.local else None  # past any proxy
    return AsyncClient(where.url, where.token, transport=transport)
