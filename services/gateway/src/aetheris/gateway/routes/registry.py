"""What plans may name: tools and models."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from aetheris.gateway.routes.edge import Parts, Who
from aetheris.protocol import api

router = APIRouter(prefix="/api", tags=["registry"])


@router.get("/tools", response_model=api.ToolList)
async def tools(caller: Who, parts: Parts) -> JSONResponse:
    """The newest version of every tool."""
    return JSONResponse({"tools": await parts.reads.tools(caller)})


@router.get("/models", response_model=api.ModelList)
async def models(_who: Who, parts: Parts) -> JSONResponse:
    """The registered models."""
    return JSONResponse({"models": parts.reads.models()})
