"""`aetheris cancel`: a job, one step of it, or all that an agent or a tenant has under way."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from aetheris.cli import local
from aetheris.cli.commands.jobs import print_answer, step_of
from aetheris.cli.console import (
    CommandError,
    Exit,
    Json,
    end,
    errors_as_exits,
    print_json,
    progress,
    table,
)
from aetheris.cli.gateway import connected
from aetheris.cli.job_ids import of_job
from aetheris.cli.since import since_time
from aetheris.sdk.client import ApiError, Client, Conflict, JobSummary

OPEN = ("submitted", "running", "waiting", "paused", "frozen", "needs_upgrade")
"""The statuses of the list in which a job has not ended."""
_PAGE = 200
_LOOKS = 5
"""So often it is looked for more that came, or moved in the list, while jobs were cancelled."""

JobId = Annotated[str | None, typer.Argument(metavar="[ID]", help="The job's id, or its beginning.")]
Agent = Annotated[str | None, typer.Option(help="Without ID: all jobs that it submitted and that have not ended.")]
Tenant = Annotated[
    str | None, typer.Option(help="Whose the job is, or the agent; alone, all its jobs. Another's: for administrators.")
]
Since = Annotated[
    str | None,
    typer.Option(help="Without ID: only jobs created from then on, by the planner's clock: 2h ago, or RFC 3339."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Without ID: do it; else what would be cancelled is only listed.")]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Whose jobs are cancelled, and how."""

    agent: str | None
    tenant: str | None
    since: str | None
    reason: str | None
    compensate: bool


def cancel(
    job_id: JobId = None,
    *,
    node: Annotated[str | None, typer.Option(help="Only this node's step; as it then fails, the job stops.")] = None,
    agent: Agent = None,
    tenant: Tenant = None,
    since: Since = None,
    reason: Annotated[str | None, typer.Option(help="Why; it is recorded.")] = None,
    compensate: Annotated[bool, typer.Option("--compensate", help="Undo what was done; of a whole job.")] = False,
    yes: Yes = False,
    who: local.As = None,
    data: local.Data = local.DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Ask a job, one step of it, or many jobs, to stop; what has started is settled first."""
    with errors_as_exits(as_json=as_json):
        if job_id is None:
            if node is not None:
                raise _bad_usage("--node", "not without ID")
            if agent is None and tenant is None:
                raise _bad_usage("ID", "name a job, --agent or --tenant")
            wanted = _Wanted(agent, tenant, since_time(since), reason, compensate)
            with connected(data, who) as client:
                failed = _cancel_many(client, wanted, yes=yes, as_json=as_json)
            end(Exit.FAILED if failed else Exit.HOLDS)
            return
        for name, given in (("--agent", agent), ("--since", since), ("--yes", yes or None)):
            if given is not None:
                raise _bad_usage(name, "not with ID")
        if node is not None and (compensate or tenant is not None):
            raise _bad_usage("--compensate" if compensate else "--tenant", "not with --node")
        with of_job(job_id, data, who, tenant) as (client, job):
            if node is None:
                answer = client.cancel(job, reason=reason, compensate=compensate, tenant=tenant)
            else:
                answer = client.cancel_contract(job, step_of(client.job(job), node), reason=reason)
        print_answer(answer, as_json=as_json)


def _cancel_many(client: Client, wanted: _Wanted, *, yes: bool, as_json: bool) -> int:
    """List what has not ended, and cancel it if that was said; how many could not be."""
    seen: dict[str, JobSummary] = {}
    came_to: dict[str, str] = {}
    for _ in range(_LOOKS if yes else 1):
        new = {one.job_id: one for one in _under_way(client, wanted) if one.job_id not in seen}
        if not new:
            break
        seen |= new
        if yes:
            came_to |= {job_id: _cancelled(client, job_id, wanted) for job_id in new}
    if as_json:
        jobs = [one.model_dump(mode="json") | {"cancel": came_to.get(job_id)} for job_id, one in seen.items()]
        print_json({"jobs": jobs, "done": yes})
    else:
        columns = ("job", "status", "created", "by", "tenant", "cancel")
        rows = [(one.job_id, one.status, one.created_at, one.submitted_by, one.tenant) for one in seen.values()]
        table(columns, [(*row, came_to.get(row[0])) for row in rows])
        progress("jobs", f"{len(seen)}" if yes or not seen else f"{len(seen)}; nothing is done yet: --yes cancels them")
    return sum(1 for said in came_to.values() if said not in _TAKEN)


_TAKEN = ("cancelled", "taken", "ended")


def _cancelled(client: Client, job_id: str, wanted: _Wanted) -> str:
    """What it came to: cancelled; taken, where the log has not answered yet; ended before; or what refused it."""
    try:
        answer = client.cancel(job_id, reason=wanted.reason, compensate=wanted.compensate, tenant=wanted.tenant)
    except Conflict as error:
        return "cancelled otherwise" if "compensate" in error.details else "ended"
    except ApiError as error:
        return error.code
    return "cancelled" if answer.event is not None or answer.command_id is None else "taken"


def _under_way(client: Client, wanted: _Wanted) -> Iterator[JobSummary]:
    for status in OPEN:
        cursor: str | None = None
        while True:
            page = client.jobs(
                status=status,
                agent=wanted.agent,
                since=wanted.since,
                tenant=wanted.tenant,
                cursor=cursor,
                limit=_PAGE,
            )
            yield from page.jobs
            cursor = page.cursor
            if cursor is None:
                break


def _bad_usage(field: str, rule: str) -> CommandError:
    return CommandError(Exit.BAD_INPUT, "bad_usage", f"{field}: {rule}", field=field)
