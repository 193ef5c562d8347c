"""Jobs: listed, shown, their events and contracts."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse, Response

from aetheris.gateway.core import preferences
from aetheris.gateway.core.access import in_tenant
from aetheris.gateway.core.problems import BadRequestProblem
from aetheris.gateway.job_histories import EventFilter, HistoryPage
from aetheris.gateway.routes.audited import across
from aetheris.gateway.routes.edge import PREFER, RouteServices, Who, also_takes, applied, number, time_of, waiting
from aetheris.gateway.routes.event_stream import EventStreamResponse, event_stream
from aetheris.gateway.views import STATUSES, JobQuery
from aetheris.protocol import api
from aetheris.protocol.base.labels import are_labels
from aetheris.views.contracts import Level

_MAX_LIMIT = 10_000
_MAX_TYPES = 20

router = APIRouter(prefix="/api/jobs", tags=["jobs"])


@router.get("", response_model=api.JobPage)
async def list_jobs(
    *,
    request: Request,
    caller: Who,
    deps: RouteServices,
    status: str | None = None,
    agent: str | None = None,
    since: str | None = None,
    label: str | None = None,
    tenant: str | None = None,
    cursor: str | None = None,
    limit: str = "50",
) -> JSONResponse:
    """Jobs, newest first; of an agent, with a label, from a time on; of another tenant, for who administers."""
    reach = in_tenant(caller, tenant)
    across(request, reach.tenant if reach.tenant != caller.tenant else None)
    query = JobQuery(listed_status(status), agent, time_of("since", since), label_of(label))
    page = await deps.reads.page(reach, query, cursor, number("limit", limit, 1, 200))
    return JSONResponse({"jobs": [row.summary() for row in page.rows], "cursor": page.cursor})


@router.get("/{job_id}", response_model=api.Job, openapi_extra=also_takes("header", Prefer=PREFER))
async def job(request: Request, caller: Who, deps: RouteServices, job_id: str) -> JSONResponse:
    """How a job stands; with `Prefer: wait=N` when it has ended, or after N seconds."""
    within_s = preferences.wait_s(request.headers.getlist("prefer"))
    if within_s is None:
        return JSONResponse(await deps.reads.job(caller, job_id))
    async with waiting(request, caller, within_s) as wait:
        view = await deps.reads.job(caller, job_id, wait)
    return JSONResponse(view, headers=applied(wait))


@router.get("/{job_id}/events", response_model=list[api.JobEvent])
async def events(
    request: Request,
    caller: Who,
    deps: RouteServices,
    job_id: str,
    *,
    after: str = "0",
    limit: str = str(_MAX_LIMIT),
    event_type: Annotated[list[str] | None, Query(alias="type", max_length=_MAX_TYPES)] = None,
    node_id: str | None = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """A job's events, or some; with `Accept: text/event-stream` a stream of all, until the job is sealed.

    With `type` those of any of these types (`text`: what a model said), with `node_id` those about that step.
    """
    seen = number("after", after, 0)
    if "text/event-stream" not in request.headers.get("accept", ""):
        most = number("limit", limit, 1, _MAX_LIMIT)
        if event_type or node_id is not None:
            wanted = EventFilter(frozenset(event_type or ()), node_id)
            return JSONResponse(await deps.histories.events(caller, job_id, wanted, HistoryPage(seen, most)))
        return JSONResponse(await deps.reads.events(caller, job_id, seen, most))
    if event_type or node_id is not None:
        raise BadRequestProblem("bad_request", "type" if event_type else "node_id", "not of a stream, which has all")
    if last_event_id:
        seen = number("Last-Event-ID", last_event_id, 0)
    row = await deps.reader.check(caller, job_id)
    counts = partial(deps.logins.counts, request.headers.get("authorization"))
    stream = event_stream(deps.reads.stream(row, seen), deps.keepalive_s, counts)
    return EventStreamResponse(stream, deps.holds.held(caller))


@router.get("/{job_id}/events/{seq}/record", response_model=api.JobRecord)
async def record(caller: Who, deps: RouteServices, job_id: str, seq: str) -> JSONResponse:
    """The record of one event, byte for byte."""
    return JSONResponse(await deps.reads.record(caller, job_id, number("seq", seq, 1)))


@router.get("/{job_id}/contracts", response_model=api.ContractList)
async def contracts(caller: Who, deps: RouteServices, job_id: str, level: str = Level.RESULT.value) -> JSONResponse:
    """The execution contracts of a job: what came of them, how they got there, or what was asked for."""
    if level not in list(Level):
        raise BadRequestProblem("bad_request", "level", f"must be one of {', '.join(Level)}")
    return JSONResponse({"contracts": await deps.reads.contracts(caller, job_id, Level(level))})


def label_of(text: str | None) -> tuple[str, str] | None:
    """NAME=VALUE, as it is asked for; raises BadRequest."""
    if text is None:
        return None
    name, _, value = text.partition("=")
    if not are_labels({name: value}):
        raise BadRequestProblem("bad_request", "label", "must be NAME=VALUE, as a label has them")
    return name, value


def listed_status(status: str | None) -> str | None:
    """A status that jobs are listed by, else an empty list would look like an answer; raises BadRequest."""
    if status is not None and status not in STATUSES:
        raise BadRequestProblem("bad_request", "status", f"must be one of {', '.join(STATUSES)}")
    return status
