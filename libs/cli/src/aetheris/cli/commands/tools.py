"""`aetheris tools`, `aetheris tools release`: what may be called, whose calls wait, who released them."""

from typing import Annotated, Any

import typer

from aetheris.cli import local
from aetheris.cli.console import Json, errors_as_exits, print_json, shown, table
from aetheris.cli.gateway import connected
from aetheris.protocol.base.ids import check_name

tools = typer.Typer(name="tools", help="List the registered tools; release one from quarantine.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="As `aetheris tools` prints it.")]


@tools.callback(invoke_without_command=True)
def listed(ctx: typer.Context, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """List the registered tools; `status` says whose calls wait because they failed too often, and who released one."""
    if ctx.invoked_subcommand is not None:
        return
    with errors_as_exits(as_json=as_json):
        with connected(data) as client:
            found = client.tools()
        if as_json:
            print_json(found)
        else:
            columns = ("name", "version", "effect_class", "irreversible", "timeout_s")
            rows = [[*(one.get(column) for column in columns), _status(one)] for one in found]
            table((*columns, "status"), rows)


@tools.command()
def release(
    name: Name,
    *,
    reason: Annotated[str, typer.Option(help="Why it will work now; recorded with your name.")],
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Let the calls of a tool in quarantine go on at once, in all jobs; what it failed before counts no more."""
    with errors_as_exits(as_json=as_json):
        check_name(name, "NAME")
        with connected(data, who) as client:
            answer = client.release_tool(name, reason=reason)
        if as_json:
            print_json(answer)
        else:
            typer.echo(f"{shown(answer['tool'])}: {_released(answer['released'])}")


def _status(tool: dict[str, Any]) -> str:
    held, released = tool.get("quarantined"), tool.get("released")
    if held:
        return f"in quarantine until {held['until']}: its last {held['failures']} calls failed"
    return f"ok; {_released(released)}" if released else "ok"


def _released(body: dict[str, Any]) -> str:
    return f"released by {shown(body['by'])} at {body['at']}: {shown(body['reason'])}"
