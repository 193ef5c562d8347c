"""`aetheris workers [NAME]`, `aetheris workers end`: who executes, and a person's word that one is gone for good."""

from typing import Annotated, Any

import typer

from aetheris.cli import local
from aetheris.cli.console import Json, errors_as_exits, fields, print_json, shown, table
from aetheris.cli.gateway import connected
from aetheris.protocol.base.ids import check_name

workers = typer.Typer(name="workers", help="List the workers; say that one is gone that left no proof of it.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="As `aetheris workers` prints it.")]


@workers.callback(invoke_without_command=True)
def listed(ctx: typer.Context, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """List every name: who lives under it, since when, and who has left it or ended."""
    if ctx.invoked_subcommand is not None:
        return
    with errors_as_exits(as_json=as_json):
        with connected(data) as client:
            found = client.workers()
        if as_json:
            print_json(found)
        else:
            columns = ("worker_id", "live", "since", "left", "ended")
            rows = [[one["worker_id"], one["live"], one["since"], len(one["left"]), one["ended"]] for one in found]
            table(columns, rows)


@workers.command()
def show(name: Name, *, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """Show a name, how its lives ended, and what it has open in your newest jobs."""
    with errors_as_exits(as_json=as_json):
        check_name(name, "NAME")
        with connected(data) as client:
            found = client.worker(name)
        if as_json:
            print_json(found)
            return
        fields((("live", found["live"]), ("since", found["since"]), ("left", ", ".join(found["left"]))))
        if found["ended"]:
            columns = ("incarnation", "how", "by", "evidence")
            table(columns, [[one.get(column) for column in columns] for one in found["ended"]])
        if found["open"]:
            columns = ("job_id", "node_id", "tool", "state", "incarnation")
            table(columns, [[one.get(column) for column in columns] for one in found["open"]])


@workers.command()
def end(
    name: Name,
    *,
    evidence: Annotated[str, typer.Option(help="How you know that it can act no more; recorded with your name.")],
    incarnation: Annotated[str | None, typer.Option(help="Which one; default: the one that lives.")] = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Say that a worker is gone for good. If it lives on, a call that it has under way may act twice."""
    with errors_as_exits(as_json=as_json):
        check_name(name, "NAME")
        with connected(data, who) as client:
            answer = client.end_worker(name, evidence=evidence, incarnation=incarnation)
        if as_json:
            print_json(answer)
        else:
            typer.echo(_told(answer))


def _told(answer: dict[str, Any]) -> str:
    if answer["ended"] is None:
        return "taken; the log has not answered yet"
    by = answer["ended"].get("by")
    how = shown(answer["ended"]["how"]) + (f", by {shown(by)}" if by else "")
    return f"{answer['incarnation']} of {answer['worker_id']} has ended ({how})"
