"""Requests to humans: listed, shown, answered."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from aetheris.gateway.routes.audited import of_request
from aetheris.gateway.routes.edge import Raw, RouteServices, Who, command, json_reply, number, replied, takes
from aetheris.protocol import api

router = APIRouter(prefix="/api", tags=["approvals"])


@router.get("/approvals", response_model=api.ApprovalPage)
async def approvals(caller: Who, deps: RouteServices, cursor: str | None = None, limit: str = "50") -> JSONResponse:
    """Open requests to humans, oldest first."""
    return JSONResponse(await deps.human_requests.open(caller, cursor, number("limit", limit, 1, 200)))


@router.get("/ecs/status/{request_id}", response_model=api.HumanRequest)
async def request_status(caller: Who, deps: RouteServices, request_id: str) -> JSONResponse:
    """A request with its form, and how it stands."""
    return JSONResponse(await deps.human_requests.request(caller, request_id))


@router.post("/ecs/respond", **command(api.Responded, api.RespondBody))
async def respond(request: Request, caller: Who, deps: RouteServices, body: Raw) -> JSONResponse:
    """Answer a request."""
    reply = await deps.human_requests.respond(caller, body)
    access = of_request(request)
    if access is not None:
        access.subject = reply.answer.request_id
        access.breaks_glass = bool(reply.answer.broke_glass)
    return replied(reply)


@router.post("/ecs/continue", response_model=api.RequestStanding, openapi_extra=takes(api.RequestBody))
async def go_on(caller: Who, deps: RouteServices, body: Raw) -> JSONResponse:
    """Whether an answered request has let its job go on: an answer does that by itself."""
    return json_reply(await deps.human_requests.standing(caller, body))
