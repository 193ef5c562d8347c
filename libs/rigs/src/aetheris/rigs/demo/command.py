"""`aetheris demo`: a story that is told by running it."""

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from aetheris.cli.console import CommandError, Exit, errors_as_exits

STORIES = ("refund", "approve", "unknown")


def demo(
    name: Annotated[str, typer.Argument(help="Which one: refund, approve, unknown.")] = "refund",
    data: Annotated[Path | None, typer.Option(help="Its data folder; a temporary one by default.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the system running afterwards.")] = False,
) -> None:
    """Tell a story by running it.

    refund: killed around every call. approve: a payout that waits for a human. unknown: answers that are lost.
    """
    with errors_as_exits():
        if name not in STORIES:
            raise CommandError(Exit.BAD_INPUT, "unknown_demo", f"there is no demo {name}", field="name")
        raise typer.Exit(import_module(f"aetheris.rigs.demo.{name}").run(data, keep))
