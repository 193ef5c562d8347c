"""Around all routes: whoever was answered, or refused, is told of to the audit topic's writer."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aetheris.gateway.access_log import AccessLog
from aetheris.gateway.core.accesses import Visit

_KEY = "aetheris.accesses"
SUBJECT_CHARS = 200
"""Of what a path names: no id is longer, and a client may write what it likes."""


def begin(request: Request, route: str) -> Visit:
    """A request was made of this route; what else is known of it is noted as it comes."""
    address = request.client.host if request.client is not None else ""
    subject = _subject(route, request.path_params)
    access = Visit(route, address, subject=subject[:SUBJECT_CHARS] if subject is not None else None)
    request.scope.setdefault(_KEY, []).append(access)
    return access


def _subject(route: str, named: Mapping[str, Any]) -> str | None:
    """What a path names first; of a dead letter its whole place."""
    if not named:
        return None
    return "/".join(map(str, named.values())) if "/{offset}" in route else str(next(iter(named.values())))


def of_request(request: Request) -> Visit | None:
    """What is known of a request; None where it was of no route."""
    found: list[Visit] = request.scope.get(_KEY, [])
    return found[-1] if found else None


def across(request: Request, tenant: str | None) -> None:
    """A request reached into another tenant; None: it did not."""
    access = of_request(request)
    if access is not None:
        access.other_tenant = tenant


class Audited:
    """ASGI: tells of each request when its answer begins."""

    def __init__(self, app: ASGIApp, log: AccessLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on the request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen: list[Visit] = []
        scope[_KEY] = seen
        begun = False

        def tell(status: int) -> None:
            if seen:
                self._log.answered(seen[-1], status)

        async def answered(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                tell(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, answered)
        except Exception:
            if not begun:
                tell(500)  # which who stands around all of this answers
            raise
