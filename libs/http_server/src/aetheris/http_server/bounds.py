"""One connection of the HTTP server: uvicorn's, whose client has bounds in bytes and time."""

import asyncio
from dataclasses import dataclass

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from aetheris.runtime.process.connections import Connection, Connections

_BESIDE_A_CHUNK = 16
"""Bytes that a chunk of a body may have beside its content: its size, its ends of lines."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one connection's client may take."""

    head_bytes: int = 64 * 1024
    """Of a request's first line and headers; and of all that follows them and is no body."""
    head_s: float = 10.0
    """From the first byte of a head to its last; of a TLS handshake too."""
    body_s: float = 60.0
    """From the end of a head to the end of its body."""
    unread_s: float = 60.0
    """How long a client may read nothing of an answer."""


class _HeadTooLarge(Exception):
    """Told to the parser, which then stops."""


class BoundedProtocol(HttpToolsProtocol):
    """Ends with a client that is too slow or says too much; tells `connections` whose turn it is."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        connections: Connections,
        connection: Connection,
        bounds: Bounds,
    ) -> None:
        super().__init__(config, state, {})
        self._all = connections
        self._connection = connection
        self._bounds = bounds
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._begun = False
        """A request has begun that has not come whole."""
        self._beside_body = 0
        self._too_large = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connection.drop = transport.abort
        if self._connection.left:
            transport.abort()
        self._within(self._bounds.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.leave(self._connection)
        self._in_time()
        self._unset_keepalive_if_required()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._beside_body += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._beside_body > self._bounds.head_bytes:
            self._too_large = True
            self.send_400_response("")
        elif self._quiet and self._deadline is None and self.timeout_keep_alive_task is None:
            self._within(self._bounds.head_s)  # empty lines, or the end of a body that was answered before it

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun = True
        self._beside_body = 0
        self._within(self._bounds.head_s)

    def on_headers_complete(self) -> None:
        reported = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if reported > self._bounds.head_bytes:
            self._too_large = True
            raise _HeadTooLarge
        self._beside_body = 0
        self._within(self._bounds.body_s)
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """The parser's word that a chunk begins."""
        self._beside_body = max(0, self._beside_body - _BESIDE_A_CHUNK)

    def on_body(self, body: bytes) -> None:
        self._beside_body = max(0, self._beside_body - len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._begun = False
        self._in_time()
        if not self.cycle.response_complete:
            self._all.works(self._connection)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._quiet and not self.transport.is_closing():
            self._all.waits(self._connection)
            if self._begun:
                self._within(self._bounds.head_s)  # it may read the answer, and end what nobody waits for

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self._bounds.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def send_400_response(self, msg: str) -> None:
        if self._too_large:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        else:
            super().send_400_response(msg)

    @property
    def _quiet(self) -> bool:
        """Whether nothing is being answered."""
        return self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def _within(self, seconds: float) -> None:
        self._in_time()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _in_time(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
