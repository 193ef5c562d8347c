"""Who looked: the audit topic, for who may read it."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from aetheris.gateway.routes.edge import RouteServices, Who, number
from aetheris.protocol import api_operations

router = APIRouter(prefix="/api/audit", tags=["audit"])


@router.get("", response_model=api_operations.AccessPage)
async def audit(
    caller: Who, deps: RouteServices, since: str | None = None, cursor: str | None = None, limit: str = "500"
) -> JSONResponse:
    """Records of accesses, oldest first; of other tenants' only where in their chain they lie."""
    return JSONResponse(await deps.access_history.page(caller, since, cursor, number("limit", limit, 1, 1000)))
