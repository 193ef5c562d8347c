"""`aetheris console`: a link that signs a browser in to the console."""

import os
from pathlib import Path
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

import httpx
import typer

from aetheris.cli import local
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, print_json
from aetheris.cli.embedded.errors import NotRunningError
from aetheris.cli.embedded.plan import State
from aetheris.cli.token_files import APPROVER
from aetheris.sdk.client.calls import bearer, trusted

Address = Annotated[
    str | None,
    typer.Option("--at", envvar="AETHERIS_CONSOLE", help="The console's address; else what runs on the data folder."),
]


def console(
    at: Address = None,
    *,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Print a link that signs a browser in, once, within two minutes; of the folder's tokens, by the approver's."""
    with errors_as_exits(as_json=as_json):
        token = _token_for(at, who) if at is not None else local.target(data, who or _whose()).token
        answer = _made(at or _running(data), token)
        if as_json:
            print_json(answer)
        else:
            typer.echo(answer["url"])


def _token_for(at: str, who: str | None) -> str:
    """For a console elsewhere: a token of the folder is for what runs on the folder, and goes nowhere else.

    Raises:
        CommandError.
    """
    given = os.environ.get("AETHERIS_TOKEN")
    if who is not None or not given:
        message = f"a console is named, {at}: set AETHERIS_TOKEN to the token to sign in with, and leave --as out"
        raise CommandError(Exit.BAD_INPUT, "bad_usage", message, field="--at")
    return given


def _whose() -> str | None:
    """A person's, where the folder's tokens count."""
    return None if os.environ.get("AETHERIS_URL") or os.environ.get("AETHERIS_TOKEN") else APPROVER


def _running(data: Path) -> str:
    state = State.load(data.resolve())
    if state is None or state.pid is None or not state.console:
        raise NotRunningError(f"No console runs on {data}", "Start it with `aetheris up`, or name one by --at.")
    return state.console


def _made(address: str, token: str) -> dict[str, Any]:
    url = f"{address.rstrip('/')}/sign-in/links"
    if urlsplit(url).scheme != "https" and urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1"):
        raise CommandError(Exit.BAD_INPUT, "not_https", "--at: a token goes by https, or stays on this machine")
    try:
        with httpx.Client(verify=trusted(url), trust_env=False, timeout=30) as http:
            answer = http.post(url, headers=bearer(token))
        body: Any = answer.json()
    except (httpx.TransportError, ValueError):
        message = f"no console answers at {address}. Is it up? `aetheris up`, `aetheris doctor`."
        raise CommandError(Exit.UNREACHABLE, "unreachable", message) from None
    found = cast("dict[str, Any]", body)
    if answer.status_code != 200:
        fault = found.get("error", {})
        raise CommandError(Exit.FAILED, str(fault.get("code")), str(fault.get("message")))
    return found
