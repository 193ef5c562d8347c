"""`aetheris pause | resume`: nothing of a job starts until it is resumed (docs/pause.md)."""

from typing import Annotated

import typer

from aetheris.cli import local
from aetheris.cli.commands.jobs import JobId
from aetheris.cli.console import Json, errors_as_exits, print_json, shown
from aetheris.cli.gateway import connected
from aetheris.cli.job_ids import whole_id
from aetheris.protocol.base.ids import check_name
from aetheris.sdk.client import Commanded

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
        check_name(job_id, "ID")
        with connected(data, who) as client:
            job_id = whole_id(client, job_id)
            answer = client.pause(job_id, reason=reason)
        _print(answer, as_json=as_json)


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
        check_name(job_id, "ID")
        with connected(data, who) as client:
            job_id = whole_id(client, job_id)
            answer = client.resume(job_id, reason=reason)
        _print(answer, as_json=as_json)


def _print(answer: Commanded, *, as_json: bool) -> None:
    if as_json:
        print_json(answer.model_dump(mode="json"))
    else:
        typer.echo("taken; the log has not answered yet" if answer.event is None else shown(answer.event))
