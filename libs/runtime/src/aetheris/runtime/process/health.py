"""/livez and /readyz, as JSON, on a port of their own: alive needs no other part, ready needs all of them."""

import asyncio
import json
import socket
from collections.abc import Callable, Mapping

from aetheris.runtime.process.connections import Connection, Connections, Listener

Check = Callable[[], str | None]
"""Why a part is not ready, in words for an operator; None if it is."""

_REQUEST_DEADLINE_S = 5.0
_MOST_CONNECTIONS = 64
_MOST_BYTES = 8 * 1024
_STATUS = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}


class Health:
    """A service's checks, and the small HTTP server that shows them."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}
        self._reported: dict[str, Callable[[], object]] = {}
        self._connections = Connections(_MOST_CONNECTIONS, _MOST_CONNECTIONS)
        self._listener: Listener | None = None

    def add(self, name: str, check: Check) -> None:
        """Let readiness depend on `check`; it must not block."""
        self._checks[name] = check

    def report(self, name: str, ask: Callable[[], object]) -> None:
        """Show what `ask` says in /readyz, for information; it must not block, and be JSON."""
        self._reported[name] = ask

    def unready(self) -> Mapping[str, str]:
        """What isn't ready, and why; empty if everything is. Without any check it is still starting."""
        if not self._checks:
            return {"service": "starting"}
        found = {name: check() for name, check in self._checks.items()}
        return {name: reason for name, reason in found.items() if reason is not None}

    async def start(self, host: str, port: int) -> int:
        """Listen; port 0 takes a free one. Returns the port."""
        listening = socket.create_server((host, port))
        self._listener = Listener(listening, self._connections, self._protocol, _REQUEST_DEADLINE_S)
        self._listener.start()
        return int(listening.getsockname()[1])

    async def stop(self) -> None:
        """Listen no longer."""
        if self._listener is not None:
            await self._listener.close()

    def _protocol(self, connection: Connection) -> asyncio.StreamReaderProtocol:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection.drop = writer.transport.abort
            try:
                if not connection.left:
                    await self._serve(reader, writer)
            finally:
                self._connections.leave(connection)

        return asyncio.StreamReaderProtocol(asyncio.StreamReader(_MOST_BYTES), serve)

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
            reported = {name: ask() for name, ask in self._reported.items()}
            return (503 if reasons else 200), {"ready": not reasons, "unready": reasons, **reported}
        return 404, {"error": {"code": "not_found", "message": "there are /livez and /readyz", "details": {}}}


def _response(status: int, body: Mapping[str, object]) -> bytes:
    payload = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status} {_STATUS[status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + payload
