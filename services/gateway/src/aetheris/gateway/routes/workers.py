"""The names of workers, and the word of a person that one has ended."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from aetheris.gateway.routes.edge import Parts, Raw, Who, command, replied
from aetheris.protocol import api

router = APIRouter(prefix="/api/workers", tags=["workers"])


@router.get("", response_model=api.WorkerList)
async def workers(_who: Who, parts: Parts) -> JSONResponse:
    """Every name."""
    return JSONResponse({"workers": parts.workers.all()})


@router.get("/{worker_id}", response_model=api.WorkerView)
async def worker(caller: Who, parts: Parts, worker_id: str) -> JSONResponse:
    """A name, how each of its lives ended, and what it has open in the caller's jobs."""
    return JSONResponse(await parts.workers.one(caller, worker_id))


@router.post("/{worker_id}/end", **command(api.WorkerEnded, api.WorkerEndBody))
async def end(caller: Who, parts: Parts, worker_id: str, body: Raw) -> JSONResponse:
    """Say that an incarnation can act no more; operators only."""
    return replied(await parts.workers.end(caller, worker_id, body))
