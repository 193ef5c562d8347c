"""A passkey of one's own, made by the person himself: it counts once an administrator has put its line in place."""

import json
import secrets
from base64 import urlsafe_b64encode
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aetheris.console.core.passkey_answers import OwnPasskey, PasskeyRefused, can_be_named
from aetheris.console.pages.edge import form_of, not_of_this_session, one, page, parts_of, signed_in
from aetheris.console.sessions import PersonSession


async def _asked(request: Request, session: PersonSession) -> Response:
    return _page(request, session)


async def _made(request: Request, session: PersonSession) -> Response:
    """Whether the browser made what was asked for, just now, by this page; its line is shown, and kept nowhere."""
    from aetheris.console.core.new_passkeys import new_passkey  # noqa: PLC0415  large, and asked for once in a while

    form = await form_of(request, session)
    if form is None:
        return not_of_this_session(request, session)
    challenge, session.passkey_challenge = session.passkey_challenge, None
    if challenge is None or not _may(session):
        return _page(request, session, "This page was used, or asked before another one: press again.", 409)
    try:
        found: Any = json.loads(one(form, "made"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return _page(request, session, "Nothing was made: the page needs a script, and a passkey.", 400)
    said = cast("dict[str, Any]", found)
    try:
        made = new_passkey(said, challenge, _host(request), parts_of(request).base_url())
    except PasskeyRefused as refused:
        return _page(request, session, str(refused), 400)
    return _page(request, session, made=made)


def _page(
    request: Request, session: PersonSession, refused: str = "", status: int = 200, made: OwnPasskey | None = None
) -> Response:
    challenge = secrets.token_bytes(32)
    if made is None:
        session.passkey_challenge = challenge
    return page(
        request,
        "passkey.html",
        session,
        status,
        may=_may(session),
        host=_host(request),
        challenge=_text(challenge),
        user=_text(secrets.token_bytes(32)),
        refused=refused,
        line=made.line_for(session.caller.id) if made is not None else "",
        fingerprint=made.key.fingerprint if made is not None else "",
    )


def _may(session: PersonSession) -> bool:
    """Who approves, as himself, under a name that can stand in a line."""
    caller = session.caller
    return session.may("approve") and caller.delegation is None and can_be_named(caller.id)


def _host(request: Request) -> str:
    return str(request.url.hostname)


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


ROUTES = [
    Route("/passkey", signed_in(_asked)),
    Route("/passkey", signed_in(_made), methods=["POST"]),
]
