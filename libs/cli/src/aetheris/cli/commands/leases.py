"""`aetheris leases`: the calls that are under way, who makes each, and whether somebody renews its lease."""

from typing import Annotated

import typer

from aetheris.cli import local
from aetheris.cli.console import Json, errors_as_exits, print_json, table
from aetheris.cli.gateway import connected

JobId = Annotated[
    str | None, typer.Argument(metavar="[JOB]", help="Of this job alone; else of your tenant's open ones.")
]


def leases(
    job: JobId = None, *, who: local.As = None, data: local.Data = local.DEFAULT_DATA, as_json: Json = False
) -> None:
    """Show the calls that are under way; one without a lease is looked after by the ledger, and says nothing more."""
    with errors_as_exits(as_json=as_json):
        with connected(data, who) as client:
            found = client.leases(job)
        if as_json:
            print_json(found)
            return
        columns = ("job", "step", "tool", "executor", "token", "lease", "")
        table(
            columns,
            [
                (
                    one["job_id"],
                    one["node_id"],
                    one["tool"],
                    one["worker_id"],
                    one["token"],
                    "none" if one.get("ends_in_s") is None else f"{one['ends_in_s']:.0f} s",
                    "in doubt" if one["in_doubt"] else "",
                )
                for one in found["leases"]
            ],
        )
        if not found["is_whole"]:
            typer.echo("there are more than were looked at", err=True)
