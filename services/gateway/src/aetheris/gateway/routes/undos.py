"""Finished effects: which can be undone, and a person's word that they are."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from aetheris.gateway.core.problems import ForbiddenProblem
from aetheris.gateway.routes.edge import Raw, RouteServices, Who, json_reply, takes, time_of
from aetheris.gateway.undos import UndoQuery
from aetheris.protocol import api, api_operations

router = APIRouter(prefix="/api", tags=["undo"])


@router.get("/undo", response_model=api_operations.UndoPage)
async def preview(
    *,
    caller: Who,
    deps: RouteServices,
    agent: str | None = None,
    tool: str | None = None,
    since: str | None = None,
    tenant: str | None = None,
    cursor: str | None = None,
) -> JSONResponse:
    """The finished effects of some jobs: what can be undone, what can't and why, in the order in which it would be."""
    if tenant not in (None, caller.tenant):
        raise ForbiddenProblem("other_tenant", "what undoes is a tenant's own job: somebody of that tenant asks for it")
    query = UndoQuery(agent, tool, time_of("since", since))
    return json_reply(await deps.undos.preview(caller, query, cursor))


@router.post(
    "/jobs/{job_id}/undo",
    status_code=202,
    response_model=api.Submitted,
    openapi_extra=takes(api_operations.UndoBody, required=False),
)
async def undo(caller: Who, deps: RouteServices, job_id: str, body: Raw) -> JSONResponse:
    """Undo what an ended job did, by a new job; each effect at most once, however often it is asked for."""
    return json_reply(await deps.undos.undo(caller, job_id, body), 202)
