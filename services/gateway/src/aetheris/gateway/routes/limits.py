"""What the caller may ask for, and what of it is left."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from aetheris.gateway.routes.edge import RouteServices, Who
from aetheris.protocol import api_operations

router = APIRouter(prefix="/api/limits", tags=["limits"])


@router.get("", response_model=api_operations.LimitsView)
async def limits(caller: Who, deps: RouteServices) -> JSONResponse:
    """The limits of the caller and of his tenant, and how many of its jobs have not ended."""
    return JSONResponse(await deps.limits.shown(caller))
