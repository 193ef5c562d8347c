"""`aetheris undo`: what an agent did, or a tool, in a time: what of it can be undone, and with --yes that it is."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from aetheris.cli import local
from aetheris.cli.console import CommandError, Exit, Json, end, errors_as_exits, print_json, progress, table
from aetheris.cli.gateway import connected
from aetheris.cli.since import since_time
from aetheris.sdk.client import ApiError, Client

Agent = Annotated[str | None, typer.Option(help="Effects of the jobs that it submitted.")]
Tenant = Annotated[str | None, typer.Option(help="All effects of your tenant, which you name.")]
Tool = Annotated[str | None, typer.Option(help="Only effects of this tool.")]
Since = Annotated[
    str | None, typer.Option(help="Only effects from then on, by their writers' clocks: 2h or 30d ago, or RFC 3339.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Undo them; else what would be undone is only listed.")]

_UNDOABLE = "undoable"


def undo(
    *,
    agent: Agent = None,
    tenant: Tenant = None,
    tool: Tool = None,
    since: Since = None,
    yes: Yes = False,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """List finished effects, and whether they can be undone; with --yes undo those that can be, each at most once."""
    with errors_as_exits(as_json=as_json):
        if agent is None and tenant is None and tool is None:
            raise CommandError(Exit.BAD_INPUT, "bad_usage", "say --agent, --tool or --tenant", field="--agent")
        from_then = since_time(since)
        with connected(data, who) as client:
            jobs = list(_meant(client, agent=agent, tenant=tenant, tool=tool, since=from_then))
            taken, refused = _undo(client, jobs, tool, from_then) if yes else ({}, {})
        if as_json:
            print_json({"jobs": jobs, "undone_by": taken, "refused": refused, "done": yes})
        else:
            _print(jobs, taken, refused, yes=yes)
        if refused:
            end(Exit.FAILED)


def _meant(client: Client, **query: str | None) -> Iterator[dict[str, Any]]:
    cursor: str | None = None
    while True:
        page = client.undoable(cursor=cursor, **query)
        yield from page["jobs"]
        cursor = page["cursor"]
        if cursor is None:
            return


def _undo(
    client: Client, jobs: list[dict[str, Any]], tool: str | None, since: str | None
) -> tuple[dict[str, str], dict[str, str]]:
    """(job → the job that undoes it, job → what refused that)."""
    taken: dict[str, str] = {}
    refused: dict[str, str] = {}
    for job in jobs:
        if not _count(job):
            continue
        try:
            taken[job["job_id"]] = client.undo(job["job_id"], tool=tool, since=since).job_id
        except ApiError as error:
            refused[job["job_id"]] = error.message
    return taken, refused


def _print(jobs: list[dict[str, Any]], taken: dict[str, str], refused: dict[str, str], *, yes: bool) -> None:
    columns = ("job", "step", "tool", "external id", "at", "undo", "by", "why")
    table(columns, [_row(job, one) for job in jobs for one in job["effects"]])
    for job in jobs:
        if job.get("why"):
            progress(job["job_id"], job["why"])
    for job_id, undone_by in taken.items():
        progress(job_id, f"undone by job {undone_by}: aetheris job {undone_by}")
    for job_id, why in refused.items():
        progress(job_id, why)
    count = sum(map(_count, jobs))
    hint = "" if yes or not count else "; nothing is done yet: --yes undoes them"
    progress("undoable", f"{count} effects of {sum(1 for job in jobs if _count(job))} jobs{hint}")


def _count(job: dict[str, Any]) -> int:
    """How many of its effects can be undone now."""
    return 0 if job.get("why") else sum(1 for one in job["effects"] if one["standing"] == _UNDOABLE)


def _row(job: dict[str, Any], one: dict[str, Any]) -> list[Any]:
    standing = one["standing"] if one["standing"] != _UNDOABLE else f"by {one['undo_tool']}"
    named = [job["job_id"], one["node_id"], one["tool"], one.get("external_id"), one.get("at")]
    return [*named, standing, one.get("job_id"), one.get("why")]
