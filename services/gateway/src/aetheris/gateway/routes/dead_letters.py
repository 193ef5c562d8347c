"""Dead letters: what no service could decode, and redriving it."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path
from fastapi.responses import JSONResponse

from aetheris.gateway.dead_letters import LetterPlace
from aetheris.gateway.routes.edge import Raw, RouteServices, Who, json_reply, takes
from aetheris.protocol import api_dead_letters as api

router = APIRouter(prefix="/api/dead-letters", tags=["dead letters"])

Number = Annotated[int, Path(ge=0, le=2**53)]


async def _place(topic: str, partition: Number, offset: Number) -> LetterPlace:
    return LetterPlace(topic, partition, offset)


Place = Annotated[LetterPlace, Depends(_place)]


@router.get("", response_model=api.DeadLetterList)
async def listed(_caller: Who, deps: RouteServices, topic: str | None = None) -> JSONResponse:
    """The newest of each topic, each once: why it is one, where it lies, whether it was redriven."""
    return json_reply(await deps.dead_letters.listed(topic))


@router.get("/{topic}/{partition}/{offset}", response_model=api.DeadLetterRecord)
async def record(caller: Who, deps: RouteServices, at: Place) -> JSONResponse:
    """One, with the record's bytes: for who administers, or whose own tenant's command it is."""
    return json_reply(await deps.dead_letters.record(caller, at))


@router.post(
    "/{topic}/{partition}/{offset}/redrive",
    response_model=api.DeadLetterView,
    openapi_extra=takes(api.RedriveBody),
)
async def redrive(caller: Who, deps: RouteServices, at: Place, body: Raw) -> JSONResponse:
    """Append a command to its topic again, as it lies there; a repeat does nothing more."""
    return json_reply(await deps.dead_letters.redrive(caller, at, body))
