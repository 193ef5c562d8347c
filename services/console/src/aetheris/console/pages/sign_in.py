"""Signing in: by the OpenID provider, or by a one-time link that `aetheris console` makes; and signing out."""

import secrets
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aetheris.console.pages.edge import (
    ConsoleParts,
    form_of,
    led,
    not_of_this_session,
    page,
    parts_of,
    problem,
    signed_in,
)
from aetheris.console.provider import LoginRefused
from aetheris.console.sessions import LINK_S, PersonSession
from aetheris.sdk.client import ApiError, Unauthorized

_BACK = "/sign-in/back"
_USED = "This link was used, or is older than two minutes. Ask for another one: aetheris console"


async def _sign_in(request: Request) -> Response:
    parts = parts_of(request)
    if parts.sessions.find(request.cookies.get(parts.cookie)) is not None:
        return led("/inbox")
    leads_to = _within(request.query_params.get("next"))
    ended = "ended" in request.query_params
    return page(request, "sign_in.html", provider=parts.provider, ended=ended, leads_to=leads_to)


async def _begin(request: Request) -> Response:
    parts = parts_of(request)
    if parts.provider is None:
        return problem(request, None, 404, "Not here", "No provider is configured here.")
    browser = secrets.token_urlsafe(32)
    leads_to = _within(request.query_params.get("next"))
    try:
        answer = led(await parts.provider.begin(browser, parts.base_url() + _BACK, leads_to))
    except LoginRefused as refused:
        return problem(request, None, 503, "Not signed in", str(refused))
    answer.set_cookie(
        _attempt_cookie(parts), browser, max_age=600, path="/", secure=parts.https, httponly=True, samesite="lax"
    )
    return answer


async def _back(request: Request) -> Response:
    parts = parts_of(request)
    if parts.provider is None:
        return problem(request, None, 404, "Not here", "No provider is configured here.")
    try:
        browser = request.cookies.get(_attempt_cookie(parts), "")
        token, leads_to = await parts.provider.end(dict(request.query_params), browser, parts.base_url() + _BACK)
        caller = await parts.gateway.caller(token)
    except LoginRefused as refused:
        return problem(request, None, 403, "Not signed in", str(refused))
    except ApiError as error:
        says = "The gateway does not take the provider's token." if isinstance(error, Unauthorized) else error.message
        return problem(request, None, 403, "Not signed in", says)
    answer = _begun(parts, parts.sessions.begin(token, caller), leads_to or "/inbox")
    answer.delete_cookie(_attempt_cookie(parts), path="/", secure=parts.https, httponly=True, samesite="lax")
    return answer


async def _make_link(request: Request) -> Response:
    """For `aetheris console`, which has a token: a code that a browser is given in its place."""
    parts = parts_of(request)
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        return JSONResponse(_fault("unauthorized", "a link is made for who has a token"), 401)
    try:
        caller = await parts.gateway.caller(token)
    except Unauthorized as error:
        return JSONResponse(_fault(error.code, error.message), 401)
    except ApiError as error:
        return JSONResponse(_fault(error.code, error.message), 503)
    url = f"{parts.base_url()}/sign-in/links/{parts.sessions.link(token, caller)}"
    return JSONResponse({"url": url, "good_for_s": LINK_S, "name": caller.id})


async def _link(request: Request) -> Response:
    """Whom it signs in; only pressing does it, so that whoever fetches a link for other reasons uses none up."""
    caller = parts_of(request).sessions.linked(request.path_params["code"])
    if caller is None:
        return problem(request, None, 410, "Not signed in", _USED)
    return page(request, "sign_in_link.html", caller=caller)


async def _use_link(request: Request) -> Response:
    parts = parts_of(request)
    begun = parts.sessions.use(request.path_params["code"])
    return _begun(parts, begun, "/inbox") if begun else problem(request, None, 410, "Not signed in", _USED)


async def _sign_out(request: Request, session: PersonSession) -> Response:
    parts = parts_of(request)
    if await form_of(request, session) is None:
        return not_of_this_session(request, session)
    parts.sessions.end(session)
    answer = led("/sign-in")
    answer.delete_cookie(parts.cookie, path="/", secure=parts.https, httponly=True, samesite="lax")
    answer.headers["Clear-Site-Data"] = '"cache", "storage"'
    return answer


def _begun(parts: ConsoleParts, session_id: str, to: str) -> Response:
    answer = led(to)
    answer.set_cookie(parts.cookie, session_id, path="/", secure=parts.https, httponly=True, samesite="lax")
    return answer


def _attempt_cookie(parts: ConsoleParts) -> str:
    return "__Host-aetheris-sign-in" if parts.https else "aetheris-sign-in"


def _within(target: str | None) -> str:
    """A page of the console that somebody wanted; nothing for whatever else."""
    plain = target is not None and target.isascii() and target.isprintable() and "\\" not in target
    return target if plain and target is not None and target.startswith("/") and target[1:2] != "/" else ""


def _fault(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "details": {}}}


ROUTES = [
    Route("/sign-in", _sign_in),
    Route("/sign-in/provider", _begin),
    Route(_BACK, _back),
    Route("/sign-in/links", _make_link, methods=["POST"]),
    Route("/sign-in/links/{code}", _link),
    Route("/sign-in/links/{code}", _use_link, methods=["POST"]),
    Route("/sign-out", signed_in(_sign_out), methods=["POST"]),
]
