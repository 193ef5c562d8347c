"""`aetheris up | down | doctor`: the embedded system."""

import os
from typing import Annotated

import typer

from aetheris.cli import local
from aetheris.cli.commands.check import startable
from aetheris.cli.console import Exit, Json, end, errors_as_exits, fields, print_json, progress, table
from aetheris.cli.embedded import doctor as examination
from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.plan import State
from aetheris.cli.embedded.services import with_counts


def up(
    data: local.Data = local.DEFAULT_DATA,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay, and end with Ctrl-C.")] = False,
    executors: Annotated[int, typer.Option(min=0, max=16, help="Executor processes.")] = 1,
    tools: Annotated[str | None, typer.Option(envvar="AETHERIS_TOOLS", help="Modules of tools, a comma list.")] = None,
    as_json: Json = False,
) -> None:
    """Start Kafka, Valkey and every service; return once all of them are ready."""
    with errors_as_exits(as_json=as_json):
        if tools is not None:
            os.environ["AETHERIS_TOOLS"] = tools  # the services inherit it
        startable()
        local.ensure_token(data)
        services = with_counts({"executor": executors})
        state = lifecycle.up(data, foreground=foreground, services=services, progress=progress)
        _print(state, as_json=as_json)


def down(data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """End everything in good order; what is in the log stays."""
    with errors_as_exits(as_json=as_json):
        lifecycle.down(data)
        if as_json:
            print_json({"data": str(data), "running": False})
        else:
            progress("all", "ended")


def doctor(data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """Say what is missing and what to do about it."""
    with errors_as_exits(as_json=as_json):
        findings = examination.examine(data)
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        rows = [("ok" if f.ok else "✗", f.subject, f.detail, f.remedy) for f in findings]
        table(("", "what", "found", "to do"), rows)
    end(Exit.HOLDS if all(finding.ok for finding in findings) else Exit.FAILED)


def _print(state: State, *, as_json: bool) -> None:
    if as_json:
        print_json({"gateway": state.gateway, "kafka": state.kafka, "redis": state.redis, "pid": state.pid})
    else:
        fields((("gateway", state.gateway), ("kafka", state.kafka)))
