"""Under which version of the rules jobs are created, and a person's word that it is a later one."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from aetheris.gateway.routes.audited import of_request
from aetheris.gateway.routes.edge import Raw, RouteServices, Who, command, json_reply, replied
from aetheris.protocol import api_operations

router = APIRouter(prefix="/api/rules", tags=["rules"])


@router.get("", response_model=api_operations.RulesView)
async def rules(_caller: Who, deps: RouteServices) -> JSONResponse:
    """The version of the rules under which jobs are created, who ordered it, and which ones each live process knows."""
    return json_reply(await deps.rules.view())


@router.post("", **command(api_operations.RulesOrderView, api_operations.RulesBody))
async def order(caller: Who, deps: RouteServices, body: Raw, request: Request) -> JSONResponse:
    """Have jobs created under a later version, in every partition; for who administers."""
    reply = await deps.rules.order(caller, body)
    access = of_request(request)
    if access is not None:
        access.subject = f"rules {reply.answer.version}"
    return replied(reply)
