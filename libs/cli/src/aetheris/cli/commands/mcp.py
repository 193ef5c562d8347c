"""`aetheris mcp`: the gateway as an MCP server on stdin and stdout; `mcp pin`: what other servers say, pinned.

`mcp proxy` stands before one.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from aetheris.cli import local
from aetheris.cli.console import CommandError, Exit, Json, end, errors_as_exits, print_json, progress, table
from aetheris.cli.gateway import async_client
from aetheris.cli.given import Config, given
from aetheris.cli.mcp_pins import PinComparisons, look
from aetheris.cli.project_file import project

ANSWER_WITHIN_S = 4.0
"""Clients give up after 5 s (OpenAI's SDK) to 60 s (Claude Code)."""
PROXY_PORT = 8095

mcp = typer.Typer(
    name="mcp", help="Serve MCP, stand before MCP servers, or pin their tools.", invoke_without_command=True
)


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


@mcp.command()
def proxy(
    server: Annotated[
        str | None, typer.Argument(help="Its name in the file of servers; may be left out with --listen.")
    ] = None,
    *,
    run: Annotated[
        str,
        typer.Option(envvar="AETHERIS_RUN", help="The run that calls belong to which name none: a ticket, an order."),
    ] = "",
    agent: Annotated[str | None, typer.Option(help="Who calls, as freezes and lists name it.")] = None,
    answer_within: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds; then a call that goes on is answered as such.")
    ] = ANSWER_WITHIN_S,
    listen: Annotated[str | None, typer.Option(help="Serve streamable HTTP on this address, not stdin.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Its port; 0 takes a free one.")] = PROXY_PORT,
    origin: Annotated[
        list[str] | None, typer.Option(help="A web page's origin that may speak to it over HTTP; may be repeated.")
    ] = None,
    host: Annotated[
        list[str] | None, typer.Option(help="A name of this host beside loopback's; may be repeated.")
    ] = None,
    servers: Annotated[Path | None, typer.Option(help="The file of servers; else the one of aetheris.toml.")] = None,
    data: local.Data = local.DEFAULT_DATA,
    config: Config = None,
) -> None:
    """Stand before an MCP server: its tools' calls are jobs, each at most once; all else goes through as it is."""
    with errors_as_exits(as_json=False), given(config):
        if listen is None and server is None:
            raise CommandError(Exit.BAD_INPUT, "bad_usage", "name a server, or --listen for all of them")
        from aetheris.cli.mcp_proxy import front_ends  # noqa: PLC0415 - the SDK is imported by nobody else

        settings = front_ends.ProxySettings(run or None, agent, answer_within)
        found = front_ends.proxied_servers(server, servers)
        if listen is None:
            (one,) = found.values()
            asyncio.run(front_ends.on_stdio(one, local.target(data), settings))
        else:
            serving = front_ends.HttpAddress(listen, port, tuple(origin or ()), tuple(host or ()))
            asyncio.run(front_ends.on_http(found, local.gateway(data), settings, serving))


@mcp.command()
def discover(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Clients' files; else .mcp.json, .cursor/mcp.json and .vscode/mcp.json of this folder."),
    ] = None,
    *,
    servers: Annotated[
        Path | None, typer.Option(help="The file that the servers move to; else the one of aetheris.toml.")
    ] = None,
    run: Annotated[str, typer.Option(help="The run that the proxies' calls belong to which name none.")] = "",
    command: Annotated[str, typer.Option(help="How the clients start aetheris.")] = "aetheris",
    undo: Annotated[bool, typer.Option("--undo", help="Have the clients' files as they were.")] = False,
    data: local.Data = local.DEFAULT_DATA,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Put the proxy before the servers of other clients' files (Claude Code and Desktop, Cursor, VS Code)."""
    with errors_as_exits(as_json=as_json), given(config):
        from aetheris.cli import mcp_discovery  # noqa: PLC0415 - the toolkit is imported by few

        place = mcp_discovery.ProjectPlace(project(config).path, data)
        found = mcp_discovery.discover(files or [], servers, run, command, place, undo=undo)
        if as_json:
            print_json({"servers": [asdict(one) | {"file": str(one.file)} for one in found]})
        else:
            table(("file", "server", "state"), [(str(one.file), one.server, one.state) for one in found])


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
        client = await clients.enter_async_context(async_client(own))
        other = None if approver is None else await clients.enter_async_context(async_client(approver))
        await server(client, other, run=run, repeats=repeats).run_stdio_async()
