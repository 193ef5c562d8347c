"""The command line: which command lies in which module. A module is imported when one of its commands is called.

What starts a system, asks a gateway or checks a proof needs much that `aetheris key` doesn't.
"""

from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points, version
from keyword import iskeyword
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_group
from typer.models import CommandInfo

PLACES = {
    "init": "init",
    "up": "system",
    "down": "system",
    "doctor": "system",
    "check": "check",
    "config": "config",
    "submit": "jobs",
    "run": "jobs",
    "jobs": "jobs",
    "job": "jobs",
    "events": "jobs",
    "result": "results",
    "logs": "logs",
    "cancel": "cancels",
    "undo": "undos",
    "pause": "pauses",
    "resume": "pauses",
    "continue": "continuation",
    "contracts": "jobs",
    "signal": "jobs",
    "resolve": "jobs",
    "reconcile": "reconciliation",
    "approvals": "approvals",
    "approve": "approvals",
    "reject": "approvals",
    "passkey": "passkey",
    "freeze": "freezes",
    "unfreeze": "freezes",
    "freezes": "freezes",
    "openings": "subjects",
    "erase": "subjects",
    "enrol": "subjects",
    "hold": "subjects",
    "release": "subjects",
    "tools": "tools",
    "models": "jobs",
    "worker": "worker",
    "workers": "workers",
    "health": "health",
    "stalled": "health",
    "leases": "leases",
    "schedules": "schedules",
    "limits": "limits",
    "quotas": "limits",
    "budgets": "budgets",
    "audit": "audit",
    "policy": "policy",
    "rules": "rules",
    "upgrade": "upgrade",
    "topics": "topics",
    "token": "token",
    "console": "console",
    "subscribe": "subscribe",
    "mcp": "mcp",
    "replay": "histories",
    "effects": "histories",
    "ledger": "histories",
    "trace": "histories",
    "why": "histories",
    "sql": "sql",
    "verify": "proofs",
    "amendments": "amendments",
    "export": "exports",
    "receipt": "call_receipts",
    "archive": "archive",
    "backup": "backups",
    "restore": "backups",
    "seals": "seals",
    "witness": "witness",
    "root": "root",
    "key": "keys",
    "dlq": "dlq",
}
"""command → module of aetheris.cli.commands, which has a function or a group of that name; in the order of the help."""

_GROUP = "aetheris.commands"
"""Entry points under which other packages bring commands of their own; those above can't be replaced."""


class LazyCommands(TyperGroup):
    """Finds commands when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  the framework's signature
        """Every command's name."""
        return [*PLACES, *(name for name in entry_points(group=_GROUP).names if name not in PLACES)]

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | TyperGroup | None:  # noqa: ARG002  the framework's signature
        """The command, its module imported now."""
        return _load(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that is called; a word that is none names those that look like it."""
        near = get_close_matches(args[0], self.list_commands(ctx))
        if near and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)


@cache
def _load(name: str) -> TyperCommand | TyperGroup | None:
    if name in PLACES:
        called = f"{name}_" if iskeyword(name) else name
        found = getattr(import_module(f"aetheris.cli.commands.{PLACES[name]}"), called)
    else:
        brought = list(entry_points(group=_GROUP, name=name))
        if not brought:
            return None
        found = brought[0].load()
    if isinstance(found, typer.Typer):
        return get_group(found)
    declared = CommandInfo(name, callback=found)
    return cast("TyperCommand", get_command_from_info(declared, pretty_exceptions_short=True, rich_markup_mode=None))


app = typer.Typer(cls=LazyCommands, no_args_is_help=True, pretty_exceptions_enable=False)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"aetheris {version('aetheris-cli')}")
        raise typer.Exit


@app.callback()
def aetheris(
    *,
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Run agents' jobs so that every tool call takes effect at most once, and check it afterwards."""
