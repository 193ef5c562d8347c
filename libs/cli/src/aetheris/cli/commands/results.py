"""`aetheris result`: what a job, or one step of it, returned."""

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from aetheris.cli import local
from aetheris.cli.commands.jobs import JobId
from aetheris.cli.console import CommandError, Exit, errors_as_exits, print_json
from aetheris.cli.job_ids import of_job
from aetheris.cli.large import LazyResults
from aetheris.sdk.client import Client, Contract

Node = Annotated[str | None, typer.Argument(metavar="[NODE]", help="Only this step's, as soon as it has one.")]


def result(
    job_id: JobId,
    node: Node = None,
    *,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Annotated[bool, typer.Option("--json", help="Errors as JSON too; a result always is.")] = False,
) -> None:
    """Print as JSON what a completed job returned: by step, of those that nothing follows; with NODE, of that step."""
    with errors_as_exits(as_json=as_json):
        with of_job(job_id, data) as (client, job):
            found = _result_of(client, job) if node is None else _of_step(client.contracts(job), node)
        print_json(_loaded(found, data))


def _result_of(client: Client, job_id: str) -> Any:
    job = client.job(job_id)
    if job.status != "completed":
        why = f": {job.why}" if job.why else ""
        raise CommandError(
            Exit.FAILED, "no_result", f"the job is {job.status}{why}; NODE shows a step's", status=job.status
        )
    return job.result


def _of_step(contracts: list[Contract], node: str) -> Any:
    of_node = [one for one in contracts if one.node_id == node]
    if not of_node:
        known = ", ".join(dict.fromkeys(one.node_id for one in contracts))
        raise CommandError(Exit.BAD_INPUT, "unknown_node", f"NODE: the job has no {node}; it has {known}", field="NODE")
    done = [one for one in of_node if one.status == "completed"]
    if not done:
        raise CommandError(Exit.FAILED, "no_result", f"{node} is {of_node[-1].status}", status=of_node[-1].status)
    return (done[-1].model_extra or {}).get("result")


def _loaded(value: Any, data: Path) -> Any:
    """A large result, which lies outside of the log."""
    held = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    blob = held.get("$blob") if held.keys() == {"$blob"} else None
    if not isinstance(blob, dict):
        return value
    sha256 = str(cast("dict[str, Any]", blob).get("sha256"))
    try:
        return LazyResults(data)[sha256]
    except KeyError:
        raise CommandError(Exit.FAILED, "blob_missing", f"the store has no {sha256}: see AETHERIS_BLOBS") from None
