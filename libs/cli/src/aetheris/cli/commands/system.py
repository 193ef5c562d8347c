"""`aetheris up | down | doctor`: the embedded system."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from aetheris.cli import local, token_files
from aetheris.cli.commands.check import origins_of, reported_faults, startable
from aetheris.cli.console import CommandError, Exit, Json, end, errors_as_exits, fields, print_json, progress, table
from aetheris.cli.embedded import doctor as examination
from aetheris.cli.embedded import lifecycle
from aetheris.cli.embedded.plan import State
from aetheris.cli.embedded.services import CONSOLE, SERVICES, asked_for, with_counts
from aetheris.cli.given import Config, EffectiveConfig, Tools, given
from aetheris.cli.project_file import MOST_EXECUTORS


def up(
    *,
    data: local.Data = local.DEFAULT_DATA,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay, and end with Ctrl-C.")] = False,
    executors: Annotated[
        int | None, typer.Option(min=0, max=MOST_EXECUTORS, help="Executor processes; else aetheris.toml's, or 1.")
    ] = None,
    tools: Tools = None,
    config: Config = None,
    agent_user: Annotated[
        str | None, typer.Option(help="The system's user that agents run as: he gets a token that submits. As root.")
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="End what runs first, in good order.")] = False,
    as_json: Json = False,
) -> None:
    """Start Kafka, Valkey and every service; return once all of them are ready."""
    data = data.resolve()
    with errors_as_exits(as_json=as_json), given(config, tools, executors) as here:
        found = startable()
        origins, loaded = origins_of(found, here), here.loaded()
        differences = _differences(data, here)
        _replaceable(data, differences, restart=restart)
        for subject, detail in (*reported_faults(found, origins), *(("changed", one) for one in differences)):
            progress(subject, detail)
        token_files.ensure_tokens(data)
        if agent_user is not None:
            progress("tokens", f"{agent_user} has one that submits: {token_files.hand_over(data, agent_user)}")
        if shared := token_files.sharing(data):
            progress("tokens", shared)
        more = asked_for()
        for one in more:
            if one.submits:
                token_files.ensure_service(data, one.name)
        services = with_counts({"executor": here.executors}, (*SERVICES, CONSOLE, *more))
        state = lifecycle.up(data, foreground=foreground, services=services, progress=progress, loaded=loaded)
        _print(state, dict(found.loaded), origins, as_json=as_json)


def _differences(data: Path, here: EffectiveConfig) -> Sequence[str]:
    before = lifecycle.loaded(data)
    return here.differences(before) if before is not None else ()


def _replaceable(data: Path, differences: Sequence[str], *, restart: bool) -> None:
    """Nothing runs on the folder any more, or just what would be started now.

    Raises:
        CommandError: what runs there was given something else; it goes on as it is.
        EmbeddedError: it could not be started anew; it goes on, too.
    """
    if lifecycle.supervisor_pid(data) is None:
        return
    if restart:
        lifecycle.check_keys(data)
        lifecycle.down(data)
    elif differences:
        message = f"It runs already, and goes on as it was started: {'; '.join(differences)}"
        remedy = "`aetheris up --restart` starts it anew with what holds now"
        raise CommandError(Exit.FAILED, "runs_otherwise", f"{message}. {remedy}", differences=differences)


def down(data: local.Data = local.DEFAULT_DATA, as_json: Json = False) -> None:
    """End everything in good order; what is in the log stays."""
    with errors_as_exits(as_json=as_json):
        lifecycle.down(data)
        if as_json:
            print_json({"data": str(data), "running": False})
        else:
            progress("all", "ended")


def doctor(data: local.Data = local.DEFAULT_DATA, config: Config = None, as_json: Json = False) -> None:
    """Say what is missing and what to do about it."""
    data = data.resolve()
    with errors_as_exits(as_json=as_json), given(config):
        findings = examination.examine(data)
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        rows = [("ok" if f.ok else "✗", f.subject, f.detail, f.remedy) for f in findings]
        table(("", "what", "found", "to do"), rows)
    end(Exit.HOLDS if all(finding.ok for finding in findings) else Exit.FAILED)


def _print(state: State, loaded: Mapping[str, str], origins: Mapping[str, str], *, as_json: bool) -> None:
    if as_json:
        runs = {
            "gateway": state.gateway,
            "console": state.console,
            "kafka": state.kafka,
            "redis": state.redis,
            "pid": state.pid,
        }
        print_json({**runs, "loaded": loaded, "from": origins})
    else:
        fields((("gateway", state.gateway), ("console", state.console), ("kafka", state.kafka)))
