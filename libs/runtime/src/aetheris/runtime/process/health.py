"""/livez and /readyz, as JSON, on a port of their own: alive needs no other part, ready needs all of them.

Beside them /metrics, as Prometheus reads it (docs/metrics.md).
"""

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from typing import NamedTuple

from aetheris.runtime.process.connections import Connection, Connections, Listener

Exposition = Callable[[], bytes]
"""Says all metrics in Prometheus' text format, from a thread of its own."""

Check = Callable[[], str | None]
"""Why a part is not ready, in words for an operator; None if it is."""

_REQUEST_DEADLINE_S = 5.0
_MOST_CONNECTIONS = 64
_MOST_BYTES = 8 * 1024
_STATUS = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}
_JSON = "application/json"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class _Answer(NamedTuple):
    """What goes back, as bytes of a type."""

    status: int
    body: bytes
    type: str = _JSON


class Health:
    """A service's checks, and the small HTTP server that shows them."""

    def __init__(self, exposition: Exposition) -> None:
        self._exposition = exposition
        self._exposing = asyncio.Lock()
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
                writer.write(_response(await self._answer(head.split(b" ", 2)[1])))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: bytes) -> _Answer:
        match path:
            case b"/livez":
                return _json(200, {"alive": True})
            case b"/readyz":
                reasons = self.unready()
                reported = {name: ask() for name, ask in self._reported.items()}
                return _json(503 if reasons else 200, {"ready": not reasons, "unready": reasons, **reported})
            case b"/metrics":
                async with self._exposing:  # one at a time, however many ask
                    return _Answer(200, await asyncio.to_thread(self._exposition), _PROMETHEUS)
            case _:
                message = "there are /livez, /readyz and /metrics"
                return _json(404, {"error": {"code": "not_found", "message": message, "details": {}}})


def _json(status: int, body: Mapping[str, object]) -> _Answer:
    return _Answer(status, json.dumps(body).encode())


def _response(answer: _Answer) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {_STATUS[answer.status]}\r\nContent-Type: {answer.type}\r\n"
        f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + answer.body
