"""`aetheris mcp`: the gateway as an MCP server on stdin and stdout."""

import asyncio
from contextlib import AsyncExitStack
from typing import Annotated

import httpx
import typer

from aetheris.cli import local
from aetheris.cli.console import errors_as_exits
from aetheris.sdk.client import AsyncClient
from aetheris.sdk.client.calls import trusted


def mcp(
    *,
    approve_as: Annotated[
        str | None, typer.Option(help="Offer a tool that approves, in the name of this token; else none is offered.")
    ] = None,
    run: Annotated[
        str,
        typer.Option(help="The run that this is: in it, what means the same is one job. Default: one for all."),
    ] = "",
    repeats: Annotated[bool, typer.Option("--repeats", help="Let the agent do the same once more on purpose.")] = False,
    data: local.Data = local.DEFAULT_DATA,
) -> None:
    """Serve MCP on stdin and stdout: submit, watch and verify jobs, for agents that live elsewhere."""
    with errors_as_exits(as_json=False):
        own = local.target(data)
        approver = local.target(data, approve_as) if approve_as is not None else None
    asyncio.run(_serve(own, approver, run, repeats=repeats))


async def _serve(own: local.Target, approver: local.Target | None, run: str, *, repeats: bool) -> None:
    from aetheris.cli.mcp_server import server  # noqa: PLC0415 - the SDK is imported by nobody else

    async with AsyncExitStack() as clients:
        client = await clients.enter_async_context(_client(own))
        other = None if approver is None else await clients.enter_async_context(_client(approver))
        await server(client, other, run=run, repeats=repeats).run_stdio_async()


def _client(where: local.Target) -> AsyncClient:
    transport = httpx.AsyncHTTPTransport(verify=trusted(where.url)) if where.local else None  # past any proxy
    return AsyncClient(where.url, where.token, transport=transport)
