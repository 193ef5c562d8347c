"""`aetheris mcp`: the gateway as an MCP server on stdin and stdout; `mcp pin`: what other servers say, pinned."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Annotated

import httpx
import typer

from aetheris.cli import local
from aetheris.cli.console import CommandError, Exit, Json, end, errors_as_exits, print_json, progress, table
from aetheris.cli.given import Config, given
from aetheris.cli.mcp_pins import PinComparisons, look
from aetheris.sdk.client import AsyncClient
from aetheris.sdk.client.calls import trusted

mcp = typer.Typer(name="mcp", help="Serve MCP, or pin the tools of MCP servers.", invoke_without_command=True)


@mcp.callback()
def serve(
    ctx: typer.Context,
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
    if ctx.invoked_subcommand is not None:
        return
    with errors_as_exits(as_json=False):
        own = local.target(data)
        approver = local.target(data, approve_as) if approve_as is not None else None
        if approver is not None and approver.token == own.token:
            raise CommandError(Exit.BAD_INPUT, "same_token", "--approve-as: this token submits; name another one")
    asyncio.run(_serve(own, approver, run, repeats=repeats))


@mcp.command()
def pin(
    *,
    check: Annotated[bool, typer.Option("--check", help="Only look; ends with 1 where something differs.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show what the MCP servers say of their tools, and pin it: what changes later is not called until it is pinned."""
    with errors_as_exits(as_json=as_json), given(config):
        looked = look()
        if not check:
            looked.keep()
        _show(looked, as_json=as_json)
        if looked.unreachable or (check and looked.differs):
            end(Exit.FAILED)


def _show(looked: PinComparisons, *, as_json: bool) -> None:
    if as_json:
        print_json({"tools": [asdict(one) for one in looked.tools], "unreachable": dict(looked.unreachable)})
        return
    rows = [
        (one.server, one.tool, one.state, ", ".join(f"{k}={v}" for k, v in one.annotations.items()), one.description)
        for one in looked.tools
    ]
    table(("server", "tool", "state", "annotations", "description"), rows)
    for server, why in looked.unreachable.items():
        progress(server, f"can't be reached: {why}")


async def _serve(own: local.Target, approver: local.Target | None, run: str, *, repeats: bool) -> None:
    from aetheris.cli.mcp_server import server  # noqa: PLC0415 - the SDK is imported by nobody else

    async with AsyncExitStack() as clients:
        client = await clients.enter_async_context(_client(own))
        other = None if approver is None else await clients.enter_async_context(_client(approver))
        await server(client, other, run=run, repeats=repeats).run_stdio_async()


def _client(where: local.Target) -> AsyncClient:
    transport = httpx.AsyncHTTPTransport(verify=trusted(where.url)) if where.local else None  # past any proxy
    return AsyncClient(where.url, where.token, transport=transport)
