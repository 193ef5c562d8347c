"""What is frozen, and a person's word that it is, or may go on."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from aetheris.gateway.commands import Reply
from aetheris.gateway.routes.audited import SUBJECT_CHARS, of_request
from aetheris.gateway.routes.edge import Raw, RouteServices, Who, command, json_reply, replied
from aetheris.protocol import api_operations

router = APIRouter(prefix="/api/freezes", tags=["freezes"])


@router.get("", response_model=api_operations.FreezeList)
async def freezes(caller: Who, deps: RouteServices) -> JSONResponse:
    """The freezes in force, with what had started before them and may still act."""
    return json_reply(api_operations.FreezeList(freezes=tuple(await deps.freezes.all(caller))))


@router.post("", **command(api_operations.FreezeView, api_operations.FreezeBody))
async def freeze(caller: Who, deps: RouteServices, body: Raw, request: Request) -> JSONResponse:
    """Let nothing start of an agent, a tenant or a tool; across tenants for who administers."""
    return _told(request, await deps.freezes.freeze(caller, body))


@router.post("/end", **command(api_operations.FreezeView, api_operations.FreezeBody))
async def unfreeze(caller: Who, deps: RouteServices, body: Raw, request: Request) -> JSONResponse:
    """Let go on what is frozen."""
    return _told(request, await deps.freezes.unfreeze(caller, body))


def _told(request: Request, reply: Reply[api_operations.FreezeView]) -> JSONResponse:
    """The answer; who looks into who did what is told what was frozen, too."""
    access = of_request(request)
    if access is not None:
        if access.caller is not None and reply.answer.tenant != access.caller.tenant:
            access.other_tenant = reply.answer.tenant
        named = reply.answer.model_dump(include={"tenant", "agent", "tool"}, exclude_none=True)
        access.subject = " ".join(f"{kind} {name}" for kind, name in named.items())[:SUBJECT_CHARS]
    return replied(reply)
