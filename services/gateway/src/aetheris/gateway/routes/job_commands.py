"""What people ask of a job: 200 where the log has answered, 202 where it has not yet."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from aetheris.gateway.routes.audited import across, of_request
from aetheris.gateway.routes.edge import Raw, RouteServices, Who, command, json_reply, replied, takes
from aetheris.protocol import api

router = APIRouter(prefix="/api/jobs/{job_id}", tags=["commands"])


@router.post(
    "/continue",
    status_code=202,
    response_model=api.Submitted,
    openapi_extra=takes(api.ContinuationBody, required=False),
)
async def continue_job(caller: Who, deps: RouteServices, job_id: str, body: Raw) -> JSONResponse:
    """Continue a failed or cancelled job in a new one."""
    return json_reply(await deps.intake.continue_job(caller, job_id, body), 202)


@router.post("/cancel", **command(api.Commanded, api.CancelBody, required=False))
async def cancel(*, request: Request, caller: Who, deps: RouteServices, job_id: str, body: Raw) -> JSONResponse:
    """Ask a job to stop; one of another tenant, which is named, for who administers."""
    reply = await deps.commands.cancel(caller, job_id, body)
    across(request, reply.answer.tenant)
    return replied(reply)


@router.post("/pause", **command(api.Commanded, api.ReasonBody, required=False))
async def pause(caller: Who, deps: RouteServices, job_id: str, body: Raw) -> JSONResponse:
    """Keep a job from starting anything."""
    return replied(await deps.commands.pause(caller, job_id, body))


@router.post("/resume", **command(api.Commanded, api.ReasonBody, required=False))
async def resume(caller: Who, deps: RouteServices, job_id: str, body: Raw) -> JSONResponse:
    """End the pause that a job is in."""
    return replied(await deps.commands.resume(caller, job_id, body))


@router.post("/signal", **command(api.Commanded, api.SignalBody))
async def signal(caller: Who, deps: RouteServices, job_id: str, body: Raw) -> JSONResponse:
    """Put a signal into a job's inbox."""
    return replied(await deps.commands.signal(caller, job_id, body))


@router.post("/reconcile", **command(api.Reconciled))
async def reconcile(caller: Who, deps: RouteServices, job_id: str) -> JSONResponse:
    """Compare what a job did with the external system."""
    return replied(await deps.reconciliation.reconcile(caller, job_id))


_CONTRACT = "/contracts/{execution_id}"


@router.post(f"{_CONTRACT}/cancel", **command(api.Commanded, api.ReasonBody, required=False))
async def cancel_contract(caller: Who, deps: RouteServices, job_id: str, execution_id: str, body: Raw) -> JSONResponse:
    """Cancel one step; what is under way is settled first."""
    return replied(await deps.commands.call_off(caller, job_id, execution_id, body))


@router.post(f"{_CONTRACT}/resolve", **command(api.Commanded, api.ResolveBody))
async def resolve(
    *, request: Request, caller: Who, deps: RouteServices, job_id: str, execution_id: str, body: Raw
) -> JSONResponse:
    """Say what became of a parked step."""
    reply = await deps.commands.resolve(caller, job_id, execution_id, body)
    access = of_request(request)
    if access is not None:
        access.breaks_glass = bool(reply.answer.broke_glass)
    return replied(reply)
