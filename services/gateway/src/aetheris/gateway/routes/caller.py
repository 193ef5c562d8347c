"""Who the gateway takes the caller for."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from aetheris.gateway.routes.edge import Who, json_reply
from aetheris.protocol import api

router = APIRouter(prefix="/api/caller", tags=["caller"])


@router.get("", response_model=api.CallerView)
async def caller(caller: Who) -> JSONResponse:
    """The caller's name, tenant, kind and roles, and in whose place he acts."""
    known = caller.recorded
    place = known.delegation.model_dump(mode="json") if known.delegation is not None else None
    return json_reply(
        api.CallerView(
            id=known.id, tenant=caller.tenant, kind=known.kind, roles=tuple(map(str, known.roles)), delegation=place
        )
    )
