"""A receiver of OTLP/HTTP that writes the exports of spans to a file, each behind its length: `receiver FILE TELL`.

Nothing is decoded while others are measured. Its port goes to the descriptor TELL; it ends with its starter.
"""

import gzip
import os
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

_LENGTH = 8


def exports(path: Path) -> Iterator[bytes]:
    """What was received, as it came."""
    content, at = path.read_bytes(), 0
    while at < len(content):
        length = int.from_bytes(content[at : at + _LENGTH])
        at += _LENGTH
        yield content[at : at + length]
        at += length


def _serve(path: Path, tell: int) -> None:
    lock = Lock()
    with path.open("wb", buffering=0) as file:

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path == "/v1/traces":
                    with lock:
                        file.write(len(body).to_bytes(_LENGTH) + body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
                """Quiet."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        os.write(tell, f"{server.server_port}\n".encode())
        os.close(tell)
        server.serve_forever()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]))
