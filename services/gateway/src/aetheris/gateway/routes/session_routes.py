"""Sessions: attach to a run, have calls made, complete it. Any of them may be repeated as it was."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from aetheris.gateway.commands import Reply
from aetheris.gateway.core import preferences
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.routes.edge import Raw, RouteServices, Who, applied, command, replied, waiting
from aetheris.protocol import api_sessions as api

router = APIRouter(prefix="/api/sessions", tags=["sessions"])


@router.post("", **command(api.SessionStanding, api.SessionAttachBody))
async def attach(request: Request, caller: Who, deps: RouteServices, body: Raw) -> JSONResponse:
    """Begin a run, or take it over."""
    return await _within(request, caller, partial(deps.sessions.attach, caller, body))


@router.post("/{job_id}/calls", **command(api.SessionCallAnswer, api.SessionCallBody))
async def call(request: Request, caller: Who, deps: RouteServices, job_id: str, body: Raw) -> JSONResponse:
    """Have a call made, or take what it came to before."""
    return await _within(request, caller, partial(deps.sessions.call, caller, job_id, body))


@router.post("/{job_id}/complete", **command(api.SessionCompleted, api.SessionCompleteBody))
async def complete(request: Request, caller: Who, deps: RouteServices, job_id: str, body: Raw) -> JSONResponse:
    """End a run when its open calls have ended."""
    return await _within(request, caller, partial(deps.sessions.complete, caller, job_id, body))


async def _within(
    request: Request, caller: Principal, answer: Callable[[float | None], Awaitable[Reply[Any]]]
) -> JSONResponse:
    """As long as the client would wait (`Prefer: wait=N`), or a moment."""
    within_s = preferences.wait_s(request.headers.getlist("prefer"))
    if within_s is None:
        return replied(await answer(None))
    async with waiting(request, caller, within_s) as wait:
        found = replied(await answer(within_s))
    found.headers.update(applied(wait))
    return found
