"""`aetheris continue`: a new job that goes on from a failed or cancelled one (docs/continue.md)."""

from pathlib import Path
from typing import Annotated

import typer

from aetheris.cli import local
from aetheris.cli.commands.jobs import JobId
from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, print_json
from aetheris.cli.inputs import read_object
from aetheris.cli.job_ids import of_job


def continue_(
    job_id: JobId,
    *,
    plan: Annotated[Path | None, typer.Option(help="Instead of the job's own; what is settled stays as it is.")] = None,
    settle: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NODE=VERDICT", help="What became of a step that nobody is sure of: happened or not_executed."
        ),
    ] = None,
    evidence: Annotated[str | None, typer.Option(help="With --settle: how you know.")] = None,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Go on from a failed or cancelled job: a new one runs what is left; what succeeded is not done again."""
    with errors_as_exits(as_json=as_json):
        wanted = read_object(plan) if plan is not None else None
        words = _words(settle or [], evidence)
        with of_job(job_id, data, who) as (client, job):
            submitted = client.continue_job(job, wanted, settle=words)
        if as_json:
            print_json(submitted.model_dump(mode="json"))
        else:
            typer.echo(f"{submitted.job_id} {submitted.status}")


def _words(settle: list[str], evidence: str | None) -> dict[str, dict[str, str]]:
    """Node id → what the person who continues says of it.

    Raises:
        CommandError: of another form, or without evidence.
    """
    if bool(settle) is not bool(evidence):
        raise CommandError(Exit.BAD_INPUT, "bad_usage", "--settle and --evidence go together", field="--evidence")
    words: dict[str, dict[str, str]] = {}
    for one in settle:
        node, _, verdict = one.partition("=")
        if verdict not in ("happened", "not_executed"):
            rule = f"{one}: write NODE=happened or NODE=not_executed"
            raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="--settle")
        words[node] = {"verdict": verdict, "evidence": evidence or ""}
    return words
