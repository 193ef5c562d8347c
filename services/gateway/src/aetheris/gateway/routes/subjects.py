"""An administrator's word that a person is erased, may be enrolled anew, or is on hold."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from aetheris.gateway.routes.audited import of_request
from aetheris.gateway.routes.edge import Raw, RouteServices, Who, command, json_reply, takes
from aetheris.protocol import api_operations

router = APIRouter(prefix="/api/subjects", tags=["subjects"])


@router.post("/erase", **command(api_operations.SubjectView, api_operations.SubjectBody))
async def erase(caller: Who, deps: RouteServices, body: Raw, request: Request) -> JSONResponse:
    """Destroy a subject's key: its hidden values can't be opened again, by anybody."""
    reply = await deps.subjects.erase(caller, body)
    return _told(request, reply.answer, 200 if reply.answered else 202)


@router.post("/enrol", response_model=api_operations.SubjectView, openapi_extra=takes(api_operations.SubjectBody))
async def enrol(caller: Who, deps: RouteServices, body: Raw, request: Request) -> JSONResponse:
    """Let values of an erased subject be hidden again, under a fresh key."""
    return _told(request, await deps.subjects.enrol(caller, body))


@router.post("/hold", response_model=api_operations.SubjectView, openapi_extra=takes(api_operations.SubjectBody))
async def hold(caller: Who, deps: RouteServices, body: Raw, request: Request) -> JSONResponse:
    """Let nobody erase a subject, until it is released."""
    return _told(request, await deps.subjects.hold(caller, body))


@router.post("/release", response_model=api_operations.SubjectView, openapi_extra=takes(api_operations.SubjectBody))
async def release(caller: Who, deps: RouteServices, body: Raw, request: Request) -> JSONResponse:
    """End a subject's hold."""
    return _told(request, await deps.subjects.release(caller, body))


def _told(request: Request, answer: api_operations.SubjectView, status: int = 200) -> JSONResponse:
    """The answer; who looks into who did what is told the pseudonym, and never the name."""
    access = of_request(request)
    if access is not None:
        access.subject = f"subject {answer.pseudonym}"
    return json_reply(answer, status)
