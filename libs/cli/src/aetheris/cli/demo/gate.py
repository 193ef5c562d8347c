"""A TCP forwarder that can keep an answer back: the request arrives and takes effect, its answer does not.

It makes the moment between an effect and the knowledge of it as long as one likes, so that a process can be killed
in just that moment.
"""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

_CHUNK = 65536


class Gate:
    """Forwards 127.0.0.1:port to a server on 127.0.0.1; open until told what to hold after."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._marker: bytes | None = None
        self._released = threading.Event()
        self._held = threading.Event()

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

    def hold_after(self, marker: bytes) -> None:
        """From now on, a connection whose client sends these bytes gets no more answers, until `open`."""
        self._released, self._held = threading.Event(), threading.Event()
        self._marker = marker

    def wait_held(self, deadline_s: float) -> bool:
        """Whether a client sent the bytes within the deadline; they may not yet have taken effect."""
        return self._held.wait(deadline_s)

    def open(self) -> None:
        """Let the held answers through, and hold no more."""
        self._marker = None
        self._released.set()

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

    def held_by(self, sent: bytes) -> threading.Event | None:
        """What to wait for before the next answer, where the bytes sent call for it."""
        if self._marker is None or self._marker not in sent:
            return None
        self._held.set()
        return self._released


class _Connection:
    """Two threads, one for each direction."""

    def __init__(self, gate: Gate, client: socket.socket) -> None:
        self._gate = gate
        self._client = client
        self._wait_for: threading.Event | None = None

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
                self._wait_for = self._wait_for or self._gate.held_by(sent)
                self._server.sendall(chunk)
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_WR)

    def _answers(self, upward: threading.Thread) -> None:
        with suppress(OSError):
            while chunk := self._server.recv(_CHUNK):
                if self._wait_for is not None:
                    self._wait_for.wait()
                self._client.sendall(chunk)
        _hang_up(self._client)
        upward.join()
        self._gate.forget(self._client, self._server)
        self._client.close()
        self._server.close()


def _hang_up(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
