"""Around every page: what a browser may do with it, and whose forms are taken."""

import secrets
import traceback
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 2 * 1024 * 1024
"""Bytes of a form that are read."""

_log = structlog.get_logger(__name__)

_UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "publickey-credentials-get=(self), publickey-credentials-create=(self), camera=(), "
    "microphone=(), geolocation=(), payment=()",
}


def policy(nonce: str) -> str:
    """Nothing, but our own script (by nonce), style, pictures, requests and forms. No text becomes markup by script,
    but through htmx, and there only what comes from here (Trusted Types, hx-csp).
    """
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types htmx"
    )


class Guarded:
    """Headers on every answer; a form that another origin sends is refused before anybody reads it."""

    def __init__(self, app: ASGIApp, https: bool) -> None:
        self._app = app
        self._https = https

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})["nonce"] = nonce = secrets.token_urlsafe(18)

        begun = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = policy(nonce)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if self._https:
                    headers["Strict-Transport-Security"] = "max-age=31536000"
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"
            await send(message)

        headers = Headers(scope=scope)
        if scope["method"] in _UNSAFE and not is_own(headers, programs=scope["path"] == "/sign-in/links"):
            await PlainTextResponse("only pages of the console send its forms", 403)(scope, receive, guarded)
            return
        try:
            await self._app(scope, receive, guarded)
        except Exception as error:  # noqa: BLE001  its text may hold what a page shows: the log has its class alone
            _log.error("request failed", error=type(error).__name__, at=_places(error))
            if not begun:
                await PlainTextResponse("an unexpected error; the console's log names its class", 500)(
                    scope, receive, guarded
                )


def _places(error: Exception) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename}:{frame.lineno}" for frame in frames][-6:]


def is_own(headers: Headers, *, programs: bool = False) -> bool:
    """Whether a page of this very origin sends it, as the browser says; `programs`: or no browser at all."""
    origins, hosts = headers.getlist("origin"), headers.getlist("host")
    fetched = headers.get("sec-fetch-site")
    if not origins and fetched is None:
        return programs
    if fetched not in (None, "same-origin") or programs:
        return False
    return len(origins) == 1 and len(hosts) == 1 and urlsplit(origins[0]).netloc == hosts[0]


async def form_body(request: Request) -> bytes:
    """The bytes of a form; raises FormTooLarge."""
    taken = bytearray()
    async for chunk in request.stream():
        taken += chunk
        if len(taken) > MAX_BODY:
            raise FormTooLarge
    return bytes(taken)


class FormTooLarge(Exception):
    """More than a page of ours ever sends."""
