"""`aetheris mcp discover`: which clients' files there are, and where their servers move to (docs/mcp.md)."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aetheris.cli.console import CommandError, Exit, progress
from aetheris.cli.mcp_client_files import (
    PLACES,
    ClientFile,
    ClientFileInvalid,
    ProxiedEntry,
    ServersMoved,
    put_back,
    put_before,
)
from aetheris.runtime.process.settings import load
from aetheris.tool_executor.settings import ExecutorSettings

DEFAULT_SERVERS = Path("servers.json")


@dataclass(frozen=True)
class ProjectPlace:
    """What a proxy that is started elsewhere is to find: the project's file, where there is one, else its data."""

    config: Path | None
    data: Path


def discover(
    files: Sequence[Path], servers: Path | None, run: str, command: str, place: ProjectPlace, *, undo: bool
) -> list[ProxiedEntry]:
    """Put the proxy before every server of the files, or have them as they were.

    Raises: CommandError.
    """
    named = load(ExecutorSettings).mcp
    path = servers or named or DEFAULT_SERVERS
    found = list(files) or [Path(place) for place in PLACES if Path(place).exists()]
    if not found:
        rule = f"no file of MCP servers is here ({', '.join(PLACES)}): name one"
        raise CommandError(Exit.BAD_INPUT, "no_client_files", rule)
    argv, entries = shlex.split(command) or ["aetheris"], list[ProxiedEntry]()
    try:
        moved = ServersMoved(path)
        options = _options(place, None if path == named else path, run)
        for file in [ClientFile.read(one) for one in found]:
            entries += put_back(file, moved) if undo else put_before(file, moved, argv, options)
    except ClientFileInvalid as refused:
        raise CommandError(Exit.BAD_INPUT, "client_file_refused", str(refused)) from None
    except OSError as error:
        rule = f"{error.filename}: {error.strerror}"
        raise CommandError(Exit.FAILED, "client_file_not_written", rule) from None
    if named is None and not undo:
        progress("aetheris.toml", f'executors find the servers by mcp = "{path}"')
    return entries


def _options(place: ProjectPlace, servers: Path | None, run: str) -> list[str]:
    found = ("--data", place.data) if place.config is None else ("--config", place.config)
    where = [found, ("--servers", servers)] if servers is not None else [found]
    options = [part for option, path in where for part in (option, str(path.resolve()))]
    return [*options, "--run", run] if run else options
