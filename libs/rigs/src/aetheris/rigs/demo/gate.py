"""A TCP forwarder that can keep a request back, or an answer: it arrives only when the gate is opened, or never.

It makes the moment before an effect, or between an effect and the knowledge of it, as long as one likes, so that a
process can be killed in just that moment. It can also drop the link there, as networks do.
"""

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

_CHUNK = 65536


@dataclass(frozen=True, eq=False)
class Hold:
    """What is kept back once a client sends the marker: its request (`before` the effect), or the answer to it.

    With `drop` the answer is awaited from the server and never handed on: the client is hung up on instead.
    """

    marker: bytes
    before: bool
    drop: bool = False
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)


class Gate:
    """Forwards 127.0.0.1:port to a server on 127.0.0.1; open until told what to hold."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._hold: Hold | None = None

    @property
    def port(self) -> int:
        """Where clients connect."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="gate", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for one in self._sockets:
                _hang_up(one)

    def hold_before(self, marker: bytes) -> None:
        """From now on, a client's bytes that complete the marker are kept back; `open` hangs up on it instead."""
        self._hold_with(Hold(marker, before=True))

    def hold_after(self, marker: bytes) -> None:
        """From now on, a connection whose client sends these bytes gets no more answers, until `open`."""
        self._hold_with(Hold(marker, before=False))

    def drop_after(self, marker: bytes) -> None:
        """The next connection whose client sends these bytes is dropped once the server has answered them."""
        self._hold_with(Hold(marker, before=False, drop=True))

    def wait_held(self, deadline_s: float) -> bool:
        """Whether a client sent the bytes within the deadline; they may not yet have taken effect."""
        return self._hold is not None and self._hold.reached.wait(deadline_s)

    def open(self) -> None:
        """Let the held answers through, drop the held requests, and hold no more."""
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.released.set()

    def _hold_with(self, hold: Hold) -> None:
        former, self._hold = self._hold, hold
        if former is not None:
            former.released.set()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                _Connection(self, client).start()

    def connected(self) -> socket.socket:
        """A connection to the server. Raises: OSError."""
        return socket.create_connection(("127.0.0.1", self._server_port))

    def keep(self, *sockets: socket.socket) -> None:
        """Close these with the gate."""
        with self._lock:
            self._sockets |= {*sockets}

    def forget(self, *sockets: socket.socket) -> None:
        """These are closed."""
        with self._lock:
            self._sockets -= {*sockets}

    def held_by(self, sent: bytes) -> Hold | None:
        """What keeps the connection waiting, where the bytes sent call for it."""
        hold = self._hold
        if hold is None or hold.marker not in sent:
            return None
        hold.reached.set()
        if hold.drop:
            self._hold = None
        return hold


class _Connection:
    """Two threads, one for each direction."""

    def __init__(self, gate: Gate, client: socket.socket) -> None:
        self._gate = gate
        self._client = client
        self._hold: Hold | None = None

    def start(self) -> None:
        try:
            self._server = self._gate.connected()
        except OSError:
            self._client.close()
            return
        self._gate.keep(self._client, self._server)
        upward = threading.Thread(target=self._requests, name="gate-requests", daemon=True)
        upward.start()
        threading.Thread(target=self._answers, args=(upward,), name="gate-answers", daemon=True).start()

    def _requests(self) -> None:
        sent = b""
        with suppress(OSError):
            while chunk := self._client.recv(_CHUNK):
                sent = sent[-_CHUNK:] + chunk
                # Before the bytes go on: no answer may slip through.
                self._hold = self._hold or self._gate.held_by(sent)
                if self._hold is not None and self._hold.before:
                    self._hold.released.wait()
                    break
                self._server.sendall(chunk)
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_WR)

    def _answers(self, upward: threading.Thread) -> None:
        with suppress(OSError):
            while chunk := self._server.recv(_CHUNK):
                if self._hold is not None:
                    if self._hold.drop:
                        break
                    self._hold.released.wait()
                self._client.sendall(chunk)
        _hang_up(self._client)
        upward.join()
        self._gate.forget(self._client, self._server)
        self._client.close()
        self._server.close()


def _hang_up(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
