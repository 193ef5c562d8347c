"""`aetheris passkey add`: a passkey by which an approver signs."""

from typing import Annotated

import typer

from aetheris.cli import local, new_passkey
from aetheris.cli.console import Json, errors_as_exits, print_json, progress
from aetheris.cli.passkey_signatures import NoBrowser

passkey = typer.Typer(name="passkey", help="Make passkeys by which approvers sign.", no_args_is_help=True)


@passkey.callback()
def group() -> None:
    """Keep `add` a command of its own."""


@passkey.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, as the gateway knows him.")],
    *,
    no_browser: NoBrowser = False,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Make a passkey in the browser; print its line for the file of allowed signers, and keep it for --passkey."""
    with errors_as_exits(as_json=as_json):
        made = new_passkey.add(name, data, opens=not no_browser)
        if as_json:
            print_json({"name": made.name, "key": made.key.fingerprint, "line": made.line})
        else:
            typer.echo(made.line)
            progress("next", "this line belongs into the file that AETHERIS_SIGNERS names")
