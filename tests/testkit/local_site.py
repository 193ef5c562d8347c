"""A web server on this machine that answers everybody, and keeps what was asked of it."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class LocalSite:
    """Where it is; the paths that were asked for; what it answers to each, else {}: (content type, bytes)."""

    port: int = 0
    asked: list[str] = field(default_factory=list[str])
    pages: dict[str, tuple[str, bytes]] = field(default_factory=dict[str, tuple[str, bytes]])


@contextmanager
def running_site() -> Generator[LocalSite]:
    """On a free port, on all addresses of this machine."""
    site = LocalSite()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.path)
            kind, content = site.pages.get(self.path, ("application/json", b"{}"))
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the library's name
            """Nobody reads it."""

    with ThreadingHTTPServer(("0.0.0.0", 0), Handler) as server:
        site.port = server.server_port
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
