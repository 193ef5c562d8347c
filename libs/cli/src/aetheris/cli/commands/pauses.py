"""`aetheris pause | resume`: nothing of a job starts until it is resumed (docs/pause.md)."""

from typing import Annotated

import typer

from aetheris.cli import local
from aetheris.cli.commands.jobs import JobId, print_answer
from aetheris.cli.console import Json, errors_as_exits
from aetheris.cli.job_ids import of_job

Reason = Annotated[str | None, typer.Option(help="Why; it is recorded.")]


def pause(
    job_id: JobId,
    *,
    reason: Reason = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Keep a job from starting anything until it is resumed; what has started is settled."""
    with errors_as_exits(as_json=as_json):
        with of_job(job_id, data, who) as (client, job):
            answer = client.pause(job, reason=reason)
        print_answer(answer, as_json=as_json)


def resume(
    job_id: JobId,
    *,
    reason: Reason = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Let a paused job go on."""
    with errors_as_exits(as_json=as_json):
        with of_job(job_id, data, who) as (client, job):
            answer = client.resume(job, reason=reason)
        print_answer(answer, as_json=as_json)
