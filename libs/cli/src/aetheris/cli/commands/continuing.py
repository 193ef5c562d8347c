"""`aetheris continue`: a new job that goes on from a failed or cancelled one (docs/continue.md)."""

from pathlib import Path
from typing import Annotated

import typer

from aetheris.cli import local
from aetheris.cli.commands.jobs import JobId
from aetheris.cli.console import Json, errors_as_exits, print_json
from aetheris.cli.gateway import connected
from aetheris.cli.inputs import read_object
from aetheris.protocol.base.ids import check_name


def continue_(
    job_id: JobId,
    *,
    plan: Annotated[Path | None, typer.Option(help="Instead of the job's own; what is settled stays as it is.")] = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Go on from a failed or cancelled job: a new one runs what is left; what succeeded is not done again."""
    with errors_as_exits(as_json=as_json):
        check_name(job_id, "ID")
        wanted = read_object(plan) if plan is not None else None
        with connected(data) as client:
            submitted = client.continue_job(job_id, wanted)
        if as_json:
            print_json(submitted.model_dump(mode="json"))
        else:
            typer.echo(f"{submitted.job_id} {submitted.status}")
