"""The names of workers, and the word of a person that one has ended."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from aetheris.gateway.routes.edge import Raw, RouteServices, Who, command, replied
from aetheris.protocol import api, api_operations

router = APIRouter(prefix="/api/workers", tags=["workers"])


@router.get("", response_model=api_operations.WorkerList)
async def workers(_who: Who, deps: RouteServices) -> JSONResponse:
    """Every name."""
    return JSONResponse({"workers": deps.workers.all()})


@router.get("/{worker_id}", response_model=api_operations.WorkerView)
async def worker(caller: Who, deps: RouteServices, worker_id: str) -> JSONResponse:
    """A name, how each of its lives ended, and what it has open in the caller's jobs."""
    return JSONResponse(await deps.workers.one(caller, worker_id))


@router.post("/{worker_id}/end", **command(api_operations.WorkerEndReply, api.WorkerEndBody))
async def end(caller: Who, deps: RouteServices, worker_id: str, body: Raw) -> JSONResponse:
    """Say that an incarnation can act no more; operators only."""
    return replied(await deps.workers.end(caller, worker_id, body))
