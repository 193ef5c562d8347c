"""The data folder that a command works on: where its gateway is, and the token to call it with."""

import getpass
import os
import secrets
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from aetheris.cli.console import errors_as_exits
from aetheris.cli.embedded.errors import NotRunningError
from aetheris.cli.embedded.plan import State
from aetheris.cli.project_file import project

DEFAULT_DATA = Path(".aetheris")
APPROVER = "approver"
"""The name of the second token: who submits a job may not approve its calls."""


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
    """AETHERIS_URL and AETHERIS_TOKEN, else what runs on the data folder; `who` names one of its tokens.

    Raises:
        NotRunningError: neither is there.
    """
    outside = os.environ.get("AETHERIS_URL")
    token = os.environ.get("AETHERIS_TOKEN") if who is None else None
    return Target(outside or _url(data), token or _token(data / "tokens.toml", who), local=not outside)


def kafka(data: Path) -> str:
    """AETHERIS_KAFKA, else the broker of what runs on the data folder.

    Raises:
        NotRunningError: neither is there.
    """
    outside = os.environ.get("AETHERIS_KAFKA")
    if outside:
        return outside
    state = State.load(data.resolve())
    if state is None or state.pid is None or not state.kafka:
        raise NotRunningError(f"No Kafka runs on {data}", "Start it with `aetheris up`, or set AETHERIS_KAFKA.")
    return state.kafka


def ensure_token(data: Path) -> Path:
    """Tokens for whoever starts the system, readable by him alone: his own, and one to approve his own jobs, and to
    end workers, with.

    An existing file is left as it is.
    """
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = data / "tokens.toml"
    if not path.exists():
        staged = path.with_suffix(".new")
        staged.touch(mode=0o600)
        staged.write_text("\n".join((_fresh_token(_user()), _fresh_token(APPROVER, operator=True))))
        staged.replace(path)
    return path


def _url(data: Path) -> str:
    state = State.load(data.resolve())
    if state is None or state.pid is None:
        raise NotRunningError(f"Nothing runs on {data}", "Start it with `aetheris up`, or set AETHERIS_URL.")
    return state.gateway


def _user() -> str:
    """The name that commands are recorded under; one that TOML can take as it stands."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        return "operator"
    return name if name.isprintable() and not set(name) & {'"', "\\"} else "operator"


def _fresh_token(name: str, *, operator: bool = False) -> str:
    may = "operator = true\n" if operator else ""
    return f'[[token]]\nvalue = "{secrets.token_urlsafe(32)}"\nname = "{name}"\ntenant = "default"\n{may}'


def _token(path: Path, who: str | None) -> str:
    try:
        tokens = tomllib.loads(path.read_text()).get("token", [])
    except (OSError, tomllib.TOMLDecodeError):
        tokens = []
    for token in cast("list[dict[str, Any]]", tokens):
        if "value" in token and who in (None, token.get("name")):
            return str(token["value"])
    whose = f" of {who}" if who is not None else ""
    raise NotRunningError(f"No token{whose} in {path}", "Set AETHERIS_TOKEN to a token that the gateway knows.")
