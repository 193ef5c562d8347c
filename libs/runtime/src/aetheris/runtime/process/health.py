"""/livez and /readyz, as JSON, on a port of their own: alive needs no other part, ready needs all of them."""

import asyncio
import json
from collections.abc import Callable, Mapping

Check = Callable[[], str | None]
"""Why a part is not ready, in words for an operator; None if it is."""

_REQUEST_DEADLINE_S = 5.0
_STATUS = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}


class Health:
    """A service's checks, and the small HTTP server that shows them."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}
        self._told: dict[str, Callable[[], object]] = {}
        self._server: asyncio.Server | None = None

    def add(self, name: str, check: Check) -> None:
        """Let readiness depend on `check`; it must not block."""
        self._checks[name] = check

    def tell(self, name: str, ask: Callable[[], object]) -> None:
        """Show what `ask` says in /readyz, for information; it must not block, and be JSON."""
        self._told[name] = ask

    def unready(self) -> Mapping[str, str]:
        """What isn't ready, and why; empty if everything is. Without any check it is still starting."""
        if not self._checks:
            return {"service": "starting"}
        found = {name: check() for name, check in self._checks.items()}
        return {name: reason for name, reason in found.items() if reason is not None}

    async def start(self, host: str, port: int) -> int:
        """Listen; port 0 takes a free one. Returns the port."""
        self._server = await asyncio.start_server(self._serve, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Listen no longer."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_DEADLINE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(*self._answer(head.split(b" ", 2)[1])))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError):
            pass
        finally:
            writer.close()

    def _answer(self, path: bytes) -> tuple[int, Mapping[str, object]]:
        if path == b"/livez":
            return 200, {"alive": True}
        if path == b"/readyz":
            reasons = self.unready()
            told = {name: ask() for name, ask in self._told.items()}
            return (503 if reasons else 200), {"ready": not reasons, "unready": reasons, **told}
        return 404, {"error": {"code": "not_found", "message": "there are /livez and /readyz", "details": {}}}


def _response(status: int, body: Mapping[str, object]) -> bytes:
    payload = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status} {_STATUS[status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + payload
