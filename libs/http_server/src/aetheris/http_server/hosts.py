"""Which names an HTTP server answers to: a page that a browser took for its own host (DNS rebinding) gets nothing."""

import json
from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_BODY = json.dumps(
    {
        "error": {
            "code": "wrong_host",
            "message": "this is no name of mine: AETHERIS_HOSTS lists those that I answer to",
            "details": {},
        }
    }
).encode()


class KnownHosts:
    """421 where the Host header is neither loopback's, nor `listed`, nor the very address that was connected to.

    Listed are names without port; `*.example.org` is every name below it, `*` any.
    """

    def __init__(self, app: ASGIApp, listed: Collection[str]) -> None:
        self._app = app
        self._names = {*_LOOPBACK, *(name.lower() for name in listed if not name.startswith("*"))}
        self._below = tuple(name[1:].lower() for name in listed if name.startswith("*"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on, or refuse it."""
        if scope["type"] != "http" or self._known(scope):
            await self._app(scope, receive, send)
            return
        length = str(len(_BODY)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 421, "headers": headers})
        await send({"type": "http.response.body", "body": _BODY})

    def _known(self, scope: Scope) -> bool:
        reported = [value for name, value in scope["headers"] if name == b"host"]
        if len(reported) != 1:
            return False
        host = _without_port(reported[0].decode("latin-1").lower())
        server = scope.get("server")
        return host in self._names or host.endswith(self._below) or (server is not None and host == _shown(server[0]))


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if name and port.isascii() and port.isdigit() else host


def _shown(address: str) -> str:
    return f"[{address}]" if ":" in address else address
