"""A TCP forwarder whose connections can be made slow, or reset, while they are in use."""

import select
import socket
import struct
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

_CHUNK = 65536
_RESET = struct.pack("ii", 1, 0)  # linger on, for no time: close sends RST


class Proxy:
    """Forwards 127.0.0.1:port to a server on 127.0.0.1; every request goes on to it, whatever becomes of the answer."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.delay_s = 0.0
        self.resetting = False

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        """Until closed; each connection has a thread of its own."""
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._server_port))
        except OSError:
            client.close()
            return
        with client, server, suppress(OSError):
            self._forward(client, server)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        """One thread for both ways: a socket that another thread reads can't be reset."""
        while True:
            readable, _, _ = select.select([client, server], [], [])
            chunk = readable[0].recv(_CHUNK)
            if not chunk:
                return
            if readable[0] is client:
                server.sendall(chunk)
                continue
            time.sleep(self.delay_s)
            if self.resetting:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                return
            client.sendall(chunk)


@contextmanager
def running_proxy(server_port: int) -> Generator[Proxy]:
    """A proxy for as long as the block lasts."""
    proxy = Proxy(server_port)
    threading.Thread(target=proxy.serve, name="proxy", daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.close()
