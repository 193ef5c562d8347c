"""Somebody who listens on the network: passes on what two say to each other, and keeps it."""

import select
import socket
import socketserver
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import cast


class Wiretap(socketserver.ThreadingTCPServer):
    """Where clients reach the server through it, and all that was said either way."""

    def __init__(self, server_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Tapped)
        self.heard = bytearray()
        self.tapped = ("127.0.0.1", server_port)

    @property
    def port(self) -> int:
        """Where it is reached."""
        return self.socket.getsockname()[1]


class _Tapped(socketserver.BaseRequestHandler):
    """One connection."""

    def handle(self) -> None:
        """Pass on until one of the two has no more to say."""
        tap = cast("Wiretap", self.server)
        with socket.create_connection(tap.tapped) as server:
            ways = {self.request: server, server: self.request}
            while True:
                for one in select.select(list(ways), [], [])[0]:
                    said = one.recv(65536)
                    if not said:
                        return
                    tap.heard += said
                    ways[one].sendall(said)


@contextmanager
def running_wiretap(port: int) -> Generator[Wiretap]:
    """Before a server on that port of this machine; ends once its connections have."""
    with Wiretap(port) as tap:
        serving = threading.Thread(target=tap.serve_forever)
        serving.start()
        try:
            yield tap
        finally:
            tap.shutdown()
            serving.join()
