"""`aetheris rules`: under which version of the rules jobs are created, and a person's word that it is a later one."""

from typing import Annotated

import typer

from aetheris.cli import local
from aetheris.cli.console import Json, errors_as_exits, print_json, table
from aetheris.cli.gateway import connected

rules = typer.Typer(name="rules", no_args_is_help=True, help="Under which version of the rules jobs are created.")


@rules.callback()
def rules_commands() -> None:
    """Under which version of the rules jobs are created."""


@rules.command("show")
def show(*, who: local.As = None, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """The version, who ordered it, and which ones each live process knows."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            found = client.rules()
        if as_json:
            print_json(found)
            return
        order = found.get("order")
        typer.echo(f"version {found['version']}" + (f", ordered by {order['by']}" if order else ""))
        rows = [
            [one["service"], one["name"], one.get("version") or "", ", ".join(map(str, one["known"]))]
            for one in found["services"]
        ]
        table(("service", "name", "version", "knows"), rows)


@rules.command("order")
def order(
    version: Annotated[int, typer.Argument(metavar="VERSION", min=2)],
    *,
    reason: Annotated[str | None, typer.Option(help="Why; it is recorded with your name.")] = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Have jobs created under a later version in every partition; refused while a live process doesn't know it."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            answer = client.order_rules(version, reason=reason)
        if as_json:
            print_json(answer)
            return
        share = f"{answer['answered']} of {answer['partitions']} partitions"
        if answer["answered"] < answer["partitions"]:
            typer.echo(f"version {answer['version']}: ordered; {share} have answered yet")
        else:
            typer.echo(f"version {answer['version']}: jobs are created under it, in {share}")
