"""Which policy decides, and a person's word that another does."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from aetheris.gateway.routes.audited import of_request
from aetheris.gateway.routes.edge import Raw, RouteServices, Who, command, json_reply, replied, takes
from aetheris.protocol import api_operations

router = APIRouter(prefix="/api/policies", tags=["policies"])


@router.get("", response_model=api_operations.PolicyView)
async def policy(_caller: Who, deps: RouteServices) -> JSONResponse:
    """The policy in force with who activated it and when, and the activations before it."""
    return json_reply(await deps.policies.view())


@router.post(
    "/trial",
    response_model=api_operations.PolicyTrialPage,
    openapi_extra=takes(api_operations.PolicyTrialBody),
)
async def trial(caller: Who, deps: RouteServices, body: Raw) -> JSONResponse:
    """Which past calls of the tenant's jobs a policy would have decided otherwise; calls no tool, changes nothing."""
    return json_reply(await deps.policy_trials.tried(caller, body))


@router.post("", **command(api_operations.ActivationView, api_operations.PolicyBody))
async def activate(caller: Who, deps: RouteServices, body: Raw, request: Request) -> JSONResponse:
    """Let another policy decide, in every partition; for who administers."""
    reply = await deps.policies.activate(caller, body)
    access = of_request(request)
    if access is not None:
        access.subject = f"policy {reply.answer.number} {reply.answer.policy_hash}"
    return replied(reply)
