"""Jobs told from their logs: replayed, their effects and why, their calls, their trace."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from aetheris.gateway.job_histories import EffectQuery, HistoryPage
from aetheris.gateway.routes.edge import RouteServices, Who, json_reply, number
from aetheris.protocol import api, api_operations

router = APIRouter(prefix="/api", tags=["history"])

_MOST = 10_000
"""Steps, or effects, of a page."""


@router.get("/jobs/{job_id}/replay", response_model=dict[str, Any])
async def replay(
    caller: Who, deps: RouteServices, job_id: str, to: str | None = None, steps: str = "0"
) -> JSONResponse:
    """The job as it stood at a point, and what a replay derives otherwise than was recorded."""
    with_steps = number("steps", steps, 0, 1) == 1
    return JSONResponse(await deps.histories.replay(caller, job_id, to, steps=with_steps))


@router.get("/jobs/{job_id}/effects", response_model=dict[str, Any])
async def effects(
    caller: Who, deps: RouteServices, job_id: str, after: str = "0", limit: str | None = None
) -> JSONResponse:
    """The effect log; with `limit` at most so many effects, behind the first `after` ones."""
    return JSONResponse(await deps.histories.effects(caller, job_id, _page(after, limit)))


@router.get("/jobs/{job_id}/ledger", response_model=dict[str, Any])
async def ledger(caller: Who, deps: RouteServices, job_id: str) -> JSONResponse:
    """Each call as the ledger holds it, and what made it so."""
    return JSONResponse(await deps.histories.ledger(caller, job_id))


@router.get("/jobs/{job_id}/trace", response_model=dict[str, Any])
async def trace(
    caller: Who, deps: RouteServices, job_id: str, after: str = "0", limit: str | None = None
) -> JSONResponse:
    """Decision tree, dependency graph, steps, events; with `limit` of at most so many steps behind `after`."""
    return JSONResponse(await deps.histories.trace(caller, job_id, _page(after, limit)))


@router.get("/jobs/{job_id}/openings", response_model=api_operations.OpeningList)
async def openings(caller: Who, deps: RouteServices, job_id: str, cursor: str | None = None) -> JSONResponse:
    """The hidden values of the job, opened, so many at a time."""
    return json_reply(await deps.openings.of_job(caller, job_id, cursor))


@router.get("/effects", response_model=api.EffectPage)
async def why(
    caller: Who,
    deps: RouteServices,
    *,
    job_id: str | None = None,
    external_id: str | None = None,
    tool: str | None = None,
    since: str | None = None,
    where: Annotated[list[str] | None, Query()] = None,
    cursor: str | None = None,
) -> JSONResponse:
    """Effects, newest first, each with the tree of its reasons."""
    return JSONResponse(
        await deps.histories.why(caller, EffectQuery(job_id, external_id, tool, since, where or (), cursor))
    )


def _page(after: str, limit: str | None) -> HistoryPage | None:
    """What of a job's history is asked for; None for all of it. Raises BadRequest."""
    first = number("after", after, 0)
    if limit is not None:
        return HistoryPage(first, number("limit", limit, 1, _MOST))
    return HistoryPage(first, _MOST) if first else None
