"""`aetheris topics`: how many partitions there are, and more of them (docs/growing.md)."""

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

import typer

from aetheris.cli import growth, local
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, print_json, table
from aetheris.cli.growth import GrowingInstallation
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.log.interface import LogUnreachable
from aetheris.runtime.process.settings import RuntimeSettings, load

T = TypeVar("T")

topics = typer.Typer(name="topics", no_args_is_help=True, help="How many partitions there are, and more of them.")


@topics.callback()
def topic_commands() -> None:
    """How many partitions there are, and more of them."""


@topics.command("show")
def show(*, data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """Every topic, how many partitions it has, and whether it may be given more; needs no service."""
    with errors_as_exits(as_json=as_json):
        counts = _run(_installation(data).counts())
        rows = [{"topic": name, "partitions": has, "grows": grows} for name, (has, grows) in counts.items()]
        if as_json:
            print_json({"first": growth.first_of(counts), "topics": rows})
        else:
            table(("topic", "partitions", "may grow"), [list(row.values()) for row in rows])


@topics.command("grow")
def grow(
    count: Annotated[int, typer.Argument(metavar="COUNT", min=1, help="So many partitions jobs are to lie in.")],
    *,
    dry_run: bool = typer.Option(False, "--dry-run", help="Only say which topics would be given more."),
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Give topics more partitions while everything runs: new jobs are spread over all, old ones stay where they are."""
    with errors_as_exits(as_json=as_json):
        installation = _installation(data)
        if dry_run:
            _tell({"count": count, "lacking": growth.lacking(_run(installation.counts()), count)}, as_json=as_json)
            return
        grown = _run(installation.grow(count))
        left = _run(installation.wait_taken(count))
        if left:
            services = ", ".join(sorted(left))
            message = f"they are there, and not taken by {services} within {growth.TAKEN_WITHIN_S:.0f} s: are these up?"
            raise CommandError(Exit.FAILED, "not_taken", message, grown=grown, untaken=left)
        _tell({"count": count, "grown": grown}, as_json=as_json)


def _tell(said: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(said)
        return
    for name in said.get("lacking", said.get("grown", ())):
        typer.echo(f"{name}: {said['count']} partitions")
    if not said.get("lacking") and not said.get("grown"):
        typer.echo(f"every topic that may grow has {said['count']} partitions or more")


def _installation(data: local.Data) -> GrowingInstallation:
    settings = load(RuntimeSettings)
    return GrowingInstallation(local.kafka(data), tls_context(settings), settings.prefix)


def _run(asked: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(asked)
    except LogUnreachable as error:
        raise CommandError(Exit.UNREACHABLE, error.code, str(error)) from None
