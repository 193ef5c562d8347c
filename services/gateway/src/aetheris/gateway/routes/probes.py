"""Whether the gateway lives, and may be asked; without a token."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from aetheris.gateway.routes.edge import RouteServices

router = APIRouter(tags=["probes"])


@router.get("/livez")
async def livez() -> dict[str, Any]:
    """It lives."""
    return {"alive": True}


@router.get("/readyz", response_model=dict[str, Any])
async def readyz(deps: RouteServices) -> JSONResponse:
    """It may be asked; 503 with what is not ready."""
    reasons = dict(deps.health.unready())
    return JSONResponse({"ready": not reasons, "unready": reasons}, 503 if reasons else 200)
