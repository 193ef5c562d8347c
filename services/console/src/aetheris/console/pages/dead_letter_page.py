"""Dead letters: what no service could decode, why, its bytes as they are, and redriving it."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aetheris.console.core.exact_json import exactly_written
from aetheris.console.core.record_bytes import bytes_of, shown_bytes
from aetheris.console.pages.edge import (
    form_of,
    led,
    not_of_this_session,
    one,
    page,
    parts_of,
    quoted,
    signed_in,
)
from aetheris.console.sessions import PersonSession
from aetheris.protocol.api_dead_letters import DeadLetterList, DeadLetterRecord, DeadLetterView
from aetheris.sdk.client import ApiError, Unauthorized

_LIST = "/operations/dead-letters"


async def _listed(request: Request, session: PersonSession) -> Response:
    found = DeadLetterList.model_validate_json(await parts_of(request).gateway.get(session.token, "/dead-letters"))
    return page(request, "dead_letters.html", session, found=found)


async def _letter(request: Request, session: PersonSession) -> Response:
    return await _page(request, session)


async def _record(request: Request, session: PersonSession) -> Response:
    """Its bytes, as a file."""
    value = bytes_of((await _read(request, session)).value)
    name = "dead-letter-{partition}-{offset}.bin".format(**request.path_params)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(value, media_type="application/octet-stream", headers=headers)


async def _redrive(request: Request, session: PersonSession) -> Response:
    form = await form_of(request, session)
    if form is None:
        return not_of_this_session(request, session)
    try:
        body = exactly_written({"reason": one(form, "reason").strip()})
        await parts_of(request).gateway.post(session.token, f"{_path(request)}/redrive", body)
    except Unauthorized:
        raise
    except ApiError as error:
        return await _page(request, session, 409, error.message)
    return led("{}/{topic}/{partition}/{offset}".format(_LIST, **request.path_params))


async def _page(request: Request, session: PersonSession, status: int = 200, refused: str = "") -> Response:
    """One letter; without its bytes, where these are not for who looks."""
    letter: DeadLetterView | None = None
    shown: dict[str, Any] = {"record": None, "hidden": ""}
    try:
        letter = found = await _read(request, session)
        shown["record"] = shown_bytes(found.key, found.headers, found.value)
    except Unauthorized:
        raise
    except ApiError as error:
        if error.code != "missing_role":
            raise
        letter = await _listed_one(request, session)
        shown["hidden"] = error.message
    if letter is None:
        return page(request, "problem.html", session, 404, title="Not here", says="There is no such dead letter.")
    return page(request, "dead_letter.html", session, status, letter=letter, refused=refused, **shown)


async def _listed_one(request: Request, session: PersonSession) -> DeadLetterView | None:
    params = {"topic": request.path_params["topic"]}
    raw = await parts_of(request).gateway.get(session.token, "/dead-letters", params)
    at = request.path_params["partition"], request.path_params["offset"]
    found = DeadLetterList.model_validate_json(raw).dead_letters
    return next((letter for letter in found if (letter.partition, letter.offset) == at), None)


async def _read(request: Request, session: PersonSession) -> DeadLetterRecord:
    return DeadLetterRecord.model_validate_json(await parts_of(request).gateway.get(session.token, _path(request)))


def _path(request: Request) -> str:
    named = request.path_params
    return f"/dead-letters/{quoted(named['topic'])}/{named['partition']}/{named['offset']}"


ROUTES = [
    Route(_LIST, signed_in(_listed)),
    Route(_LIST + "/{topic}/{partition:int}/{offset:int}", signed_in(_letter)),
    Route(_LIST + "/{topic}/{partition:int}/{offset:int}/record", signed_in(_record)),
    Route(_LIST + "/{topic}/{partition:int}/{offset:int}/redrive", signed_in(_redrive), methods=["POST"]),
]
