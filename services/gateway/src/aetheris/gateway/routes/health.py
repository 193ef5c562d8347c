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


@router.get("/stalled", response_model=api_operations.StalledJobs)
async def stalled(caller: Who, deps: RouteServices) -> JSONResponse:
    """The tenant's open jobs that stand still, and why: of each status the newest, as far as they are read in time."""
    return json_reply(await deps.stalled.view(caller))
