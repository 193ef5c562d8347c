"""Who is told: a mail server, and a web server that keeps what it is sent, and may lie; outside of what counts."""

import socketserver
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from aetheris.cli.embedded.ports import free_port
from aetheris.cli.embedded.processes import end, spawn
from tests.testkit.external_server import until

HUGE = 200 * 1024
HANGS_S = 60.0


@dataclass(frozen=True)
class ToldRequest:
    """One POST, as it came."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class WebReceiver:
    """By its path a request is answered: /ok…, /status/N, /huge, /away (a redirect to `away`), /hang."""

    port: int = 0
    away: str = ""
    requests: list[ToldRequest] = field(default_factory=list)
    let_go: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def at(self, path: str) -> list[ToldRequest]:
        """Those to a path."""
        return [one for one in list(self.requests) if one.path == path]


@contextmanager
def web_receiver() -> Generator[WebReceiver]:
    """Listens on a port of this machine."""
    receiver = WebReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.requests.append(ToldRequest(self.path, headers, body))
            if self.path == "/hang":
                receiver.let_go.wait(HANGS_S)
            status = int(self.path.rpartition("/")[2]) if self.path.startswith("/status/") else 200
            answer = b"x" * HUGE if self.path == "/huge" else b"ok"
            self.send_response(302 if self.path == "/away" else status)
            if self.path == "/away":
                self.send_header("Location", receiver.away)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST  # noqa: N815  what follows a redirect

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class' name
            """Nothing."""

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True
        request_queue_size = 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Of who has gone."""

    with Server(("127.0.0.1", 0), Handler) as server:
        receiver.port = int(server.server_address[1])
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        serving.start()
        try:
            yield receiver
        finally:
            receiver.let_go.set()
            server.shutdown()
            serving.join(10)


@dataclass(frozen=True)
class MailReceiver:
    """aiosmtpd; each mail is a file."""

    port: int
    maildir: Path

    def mails(self) -> list[str]:
        new = self.maildir / "new"
        return [one.read_text() for one in new.iterdir()] if new.is_dir() else []


@contextmanager
def mail_receiver(folder: Path) -> Generator[MailReceiver]:
    """Listens on a port of this machine."""
    port, maildir = free_port(), folder / "mails"
    handler = ["-c", "aiosmtpd.handlers.Mailbox", str(maildir)]
    argv = [sys.executable, "-m", "aiosmtpd", "-n", "-l", f"127.0.0.1:{port}", *handler]
    child = spawn(argv, log=folder / "mail.log")
    try:
        until(lambda: _listens(port), 20)
        yield MailReceiver(port, maildir)
    finally:
        end(child, 5)


def _listens(port: int) -> bool:
    import socket

    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        time.sleep(0.05)
        return False
