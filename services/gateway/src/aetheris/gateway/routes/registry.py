"""What plans may name: tools and models."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from aetheris.gateway.routes.edge import Raw, RouteServices, Who, command, replied
from aetheris.protocol import api, api_operations

router = APIRouter(prefix="/api", tags=["registry"])


@router.get("/tools", response_model=api_operations.ToolList)
async def tools(caller: Who, deps: RouteServices) -> JSONResponse:
    """The newest version of every tool."""
    released = deps.tool_releases.of(caller.tenant)
    return JSONResponse({"tools": [_with(released, tool) for tool in await deps.reads.tools(caller)]})


@router.post("/tools/{name}/release", **command(api_operations.ToolReleased, api.ToolReleaseBody))
async def release(caller: Who, deps: RouteServices, name: str, body: Raw) -> JSONResponse:
    """Let a tool's calls, which wait because it failed too often, go on in the caller's tenant."""
    return replied(await deps.tool_releases.release(caller, name, body))


@router.get("/models", response_model=api_operations.ModelList)
async def models(_who: Who, deps: RouteServices) -> JSONResponse:
    """The registered models."""
    return JSONResponse({"models": deps.reads.models()})


def _with(released: Mapping[str, api_operations.ReleaseView], tool: dict[str, Any]) -> dict[str, Any]:
    last = released.get(tool["name"])
    return tool if last is None else tool | {"released": last.model_dump(mode="json")}
