"""The data folder that a command works on: where its gateway is, and the token to call it with."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from aetheris.cli.console import errors_as_exits
from aetheris.cli.embedded.errors import NotRunningError
from aetheris.cli.embedded.plan import State
from aetheris.cli.project_file import project

DEFAULT_DATA = Path(".aetheris")


def _of_project(ctx: typer.Context, value: Path) -> Path:
    """Where neither the flag nor the environment says which, the one of aetheris.toml."""
    source = ctx.get_parameter_source("data")
    if ctx.resilient_parsing or source is None or source.name != "DEFAULT":
        return value
    with errors_as_exits(as_json=bool(ctx.params.get("as_json"))):
        return project(ctx.params.get("config") or _config()).data or value
    return value


def _config() -> Path | None:
    named = os.environ.get("AETHERIS_CONFIG")
    return Path(named) if named else None


Data = Annotated[
    Path,
    typer.Option(
        "--data",
        envvar="AETHERIS_DATA",
        callback=_of_project,
        help="Folder of the log, the tokens and everything else; else that of aetheris.toml.",
    ),
]

As = Annotated[str | None, typer.Option("--as", help="Speak by this name: one of the data folder's tokens.")]


@dataclass(frozen=True)
class Target:
    """A gateway, and the token that it knows us by."""

    url: str
    token: str = field(repr=False)
    local: bool = True


def target(data: Path, who: str | None = None) -> Target:
    """AETHERIS_URL by AETHERIS_TOKEN, else what runs on the data folder; `who` names one of its tokens.

    A token of the folder is for what runs on the folder, and goes nowhere else.

    Raises:
        NotRunningError: there is no gateway, or no token for it.
    """
    from aetheris.cli import token_files  # noqa: PLC0415  much of the gateway's, which who checks a file doesn't need

    outside, given = os.environ.get("AETHERIS_URL"), os.environ.get("AETHERIS_TOKEN")
    if not outside:
        url, token = _url(data), given if who is None else None
        return Target(url, token or token_files.saved(data, who or token_files.AGENT))
    if who is not None:
        message = f"AETHERIS_URL is set, and the token of {who} is for what runs on {data} only"
        raise NotRunningError(message, f"Set AETHERIS_TOKEN to the token that {who} has there, or unset AETHERIS_URL.")
    if not given:
        message = "AETHERIS_URL is set without AETHERIS_TOKEN"
        raise NotRunningError(message, "Set AETHERIS_TOKEN to a token that the gateway there knows.")
    return Target(outside, given, local=False)


def gateway(data: Path) -> Target:
    """As `target` finds it, for others' tokens.

    Raises:
        NotRunningError: there is none.
    """
    outside = os.environ.get("AETHERIS_URL")
    return Target(outside, "", local=False) if outside else Target(_url(data), "")


def kafka(data: Path) -> str:
    """AETHERIS_KAFKA, else the broker of what runs on the data folder.

    Raises:
        NotRunningError: neither is there.
        InstallationMixed: what runs there has another AETHERIS_PREFIX.
    """
    outside = os.environ.get("AETHERIS_KAFKA")
    if outside:
        return outside
    state = State.load(data.resolve())
    if state is None or state.pid is None or not state.kafka:
        raise NotRunningError(f"No Kafka runs on {data}", "Start it with `aetheris up`, or set AETHERIS_KAFKA.")
    from aetheris.runtime.process import installation  # noqa: PLC0415  settings, which who checks a file doesn't need

    installation.claim(data.resolve(), os.environ.get("AETHERIS_PREFIX", ""))
    return state.kafka


def _url(data: Path) -> str:
    state = State.load(data.resolve())
    if state is None or state.pid is None:
        raise NotRunningError(f"Nothing runs on {data}", "Start it with `aetheris up`, or set AETHERIS_URL.")
    return state.gateway
