"""`aetheris logs`: what the services of a data folder have logged, of all jobs, or of one beside its events.

Services log nothing of a step that its events say: thousands a second would be written twice.
"""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from aetheris.cli import local
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, out, print_json_line, progress, shown
from aetheris.cli.event_lines import JobEvents
from aetheris.cli.loglines import LogFile, LogLine, in_order, log_files
from aetheris.protocol.base.ids import check_name

_LOOK_AGAIN_S = 0.3
_INTERRUPTED = 130
_NAMED = 5


def logs(
    job_id: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="Only of this job, with its events; its id's beginning will do."),
    ] = None,
    *,
    part: Annotated[
        str | None, typer.Option(help="Only of executor, ledger, …; kafka and valkey by name only.")
    ] = None,
    lines: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = 200,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as they come, until Ctrl-C.")] = False,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Print the services' log lines by their times; of a job beside its events, as far as a gateway runs to ask."""
    with errors_as_exits(as_json=as_json):
        if job_id is not None:
            check_name(job_id, "JOB")
        files = _files(data, part)
        events = None if job_id is None else JobEvents(data, job_id, part)
        found = in_order((*(line for file in files for line in (*file.earlier(), *file.more())), *_told(events)))
        if events is not None:
            found = _of_job(found, events.job_id)
            if not found:
                progress(events.job_id, "no line names it")
        _print(found[-lines:], as_json=as_json)
        if follow:
            _follow(files, events, as_json=as_json)


def _told(events: JobEvents | None) -> Iterable[LogLine]:
    return () if events is None else events.more()


def _files(data: Path, part: str | None) -> Sequence[LogFile]:
    found = log_files(data / "logs", part)
    if not found:
        which = f" of {part}" if part is not None else ""
        raise CommandError(
            Exit.BAD_INPUT, "no_logs", f"{data / 'logs'}: there is no log{which}; see --data", folder=str(data)
        )
    return found


def _of_job(lines: Sequence[LogLine], job_id: str) -> list[LogLine]:
    """Raises: CommandError: several jobs begin so; names them."""
    found = [line for line in lines if line.names(job_id)]
    jobs = list(dict.fromkeys(one for line in found for one in line.jobs if one.startswith(job_id)))
    if len(jobs) > 1 and job_id not in jobs:
        named = ", ".join(jobs[:_NAMED]) + (" …" if len(jobs) > _NAMED else "")
        message = f"JOB: {len(jobs)} jobs in the logs begin with {job_id}: {named}"
        raise CommandError(Exit.BAD_INPUT, "ambiguous_id", message, field="JOB")
    return found


def _follow(files: Sequence[LogFile], events: JobEvents | None, *, as_json: bool) -> None:
    try:
        while True:
            fresh = in_order((*(line for file in files for line in file.more()), *_told(events)))
            _print([line for line in fresh if events is None or line.names(events.job_id)], as_json=as_json)
            time.sleep(_LOOK_AGAIN_S)
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None


def _print(lines: Sequence[LogLine], *, as_json: bool) -> None:
    for line in lines:
        if as_json:
            print_json_line(line.to_json())
        else:
            out.print(shown(line))
