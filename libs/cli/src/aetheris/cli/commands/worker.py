"""`aetheris worker`: an executor in the foreground, for the loop of writing tools (docs/tools.md)."""

import os
from typing import Annotated

import typer

from aetheris.cli import local
from aetheris.cli.console import CommandError, Exit, Json, err, errors_as_exits, print_json_line, progress, shown
from aetheris.cli.embedded.foreground import Foreground, environment
from aetheris.cli.embedded.sources import Sources
from aetheris.cli.given import Config, Tools, given
from aetheris.cli.loglines import LogLine

_INTERRUPTED = frozenset({0, 130})


def worker(
    *,
    tools: Tools = None,
    config: Config = None,
    reload: Annotated[bool, typer.Option("--reload", help="Start anew when a file of the modules changes.")] = False,
    name: Annotated[str | None, typer.Option(help="Its worker id, where several run on one data folder.")] = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Run an executor here, beside `aetheris up --executors 0`: its log is printed, and breakpoints work."""
    data = data.resolve()
    with errors_as_exits(as_json=as_json), given(config, tools):
        modules = os.environ.get("AETHERIS_TOOLS", "")
        env = environment(data)
        if name is not None:
            env["AETHERIS_WORKER_ID"] = name
        sources = Sources([one.strip() for one in modules.split(",") if one.strip()]) if reload else None
        progress("worker", f"{modules or 'tools of installed packages'}; Ctrl-C ends it")
        running = Foreground(env, lambda text: progress("worker", text), _json if as_json else _text)
        code = running.run(sources)
        if code not in _INTERRUPTED:
            raise CommandError(Exit.FAILED, "worker_ended", f"the executor ended with {code}; its last lines say why")


def _text(line: LogLine) -> None:
    err.print(shown(line))


def _json(line: LogLine) -> None:
    print_json_line(line.to_json())
