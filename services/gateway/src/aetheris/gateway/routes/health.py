"""How the system stands, and which jobs of the tenant stand still."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from aetheris.gateway.routes.edge import RouteServices, Who, json_reply
from aetheris.protocol import api_operations

router = APIRouter(prefix="/api", tags=["health"])


@router.get("/health", response_model=api_operations.HealthView)
async def health(_caller: Who, deps: RouteServices) -> JSONResponse:
    """Who is there of each service, what waits in its topics, dead letters, and what each executor serves."""
    return json_reply(await deps.system_health.view())


@router.get("/leases", response_model=api_operations.LeaseList)
async def leases(caller: Who, deps: RouteServices) -> JSONResponse:
    """The calls of the tenant's open jobs that are under way, each with its lease, as far as they are read in time."""
    return json_reply(await deps.leases.view(caller))


@router.get("/jobs/{job_id}/leases", response_model=api_operations.LeaseList)
async def leases_of_job(caller: Who, deps: RouteServices, job_id: str) -> JSONResponse:
    """A job's calls that are under way, each with its lease."""
    return json_reply(await deps.leases.of_job(caller, job_id))


@router.get("/stalled", response_model=api_operations.StalledJobs)
async def stalled(caller: Who, deps: RouteServices) -> JSONResponse:
    """The tenant's open jobs that stand still, and why: of each status the newest, as far as they are read in time."""
    return json_reply(await deps.stalled.view(caller))
