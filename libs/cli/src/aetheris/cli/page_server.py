"""A page for one person, on this machine alone, until he has answered: by it a command asks his browser for something.

It is served at `localhost`, whose passkeys no page from elsewhere can ask for, on both loopback addresses, so that
nobody else on the machine can be what the browser finds there.
"""

import errno
import secrets
import socket
import socketserver
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aetheris.cli.console import CommandError, Exit, progress

HOST = "localhost"
MAX_BODY = 16 * 1024
"""Bytes of an answer; one has some 1,000."""
WITHIN_S = 300.0

_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
_TRIES = 20
_STALLED_S = 10.0


class PageAnswerRefused(ValueError):
    """What the browser sent is not what was asked for; the message is shown on the page."""


@dataclass(slots=True)
class PersonalPage:
    """What is served, to whom knows `secret`; `take` judges an answer, and raises `PageAnswerRefused`."""

    html: Callable[[str], str]
    """The page, of a nonce that its script and style must have."""
    take: Callable[[bytes], Any]
    port: int = 0
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    answer: Any = None
    answered: threading.Event = field(default_factory=threading.Event)
    taking: threading.Lock = field(default_factory=threading.Lock)

    @property
    def origin(self) -> str:
        """As the browser will name it."""
        return f"http://{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """Where it is; who knows it can look at it."""
        return f"{self.origin}/{self.secret}"


@contextmanager
def served(page: PersonalPage) -> Generator[PersonalPage]:
    """The page at its port, and away again."""
    with ExitStack() as stack:
        for server in _servers(page):
            stack.callback(server.server_close)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            stack.callback(server.shutdown)
        yield page


def answer(page: PersonalPage, *, opens: bool, within_s: float = WITHIN_S) -> Any:
    """What the person answered on a page that is served.

    Raises:
        CommandError: nobody did in time.
    """
    progress("open", page.url)
    with ExitStack() as stack:
        if opens:
            webbrowser.open(stack.enter_context(_leading(page)))
        if not page.answered.wait(within_s):
            raise CommandError(Exit.FAILED, "no_answer", f"nobody answered on the page within {within_s:.0f} s")
    return page.answer


@contextmanager
def _leading(page: PersonalPage) -> Generator[str]:
    """The URL of a file of one's own that leads there: every user of the machine sees what a browser is called with."""
    with tempfile.TemporaryDirectory(prefix="aetheris-") as folder:
        leads = Path(folder, "open.html")
        leads.touch(0o600)
        leads.write_text(
            '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0; url={page.url}"><a href="{page.url}">Open the page</a>\n'
        )
        yield leads.as_uri()


def _servers(page: PersonalPage) -> Sequence[ThreadingHTTPServer]:
    """On a port that is free on both addresses; on one, where the machine has no other."""
    families = [one for one in _FAMILIES if _has(one)]
    for _ in range(_TRIES):
        page.port = 0
        made: list[ThreadingHTTPServer] = []
        try:
            for family in families:
                made.append(_server(page, family))
                page.port = made[0].server_address[1]
        except OSError as error:
            for one in made:
                one.server_close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return made
    raise CommandError(Exit.FAILED, "no_port", "no port is free for the page")


def _has(family: socket.AddressFamily) -> bool:
    try:
        with socket.socket(family) as probe:
            probe.bind((_LOOPBACK[family], 0))
    except OSError:
        return False
    return True


def _server(page: PersonalPage, family: socket.AddressFamily) -> ThreadingHTTPServer:
    class Server(ThreadingHTTPServer):
        address_family = family
        allow_reuse_address = False
        daemon_threads = True
        block_on_close = False

        def server_bind(self) -> None:
            """Without asking a name server what the loopback is called."""
            socketserver.TCPServer.server_bind(self)

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Who goes away in mid-answer is no news."""

    class Handler(_Handler):
        served = page

    return Server((_LOOPBACK[family], page.port), Handler)


class _Handler(BaseHTTPRequestHandler):
    served: PersonalPage
    timeout = _STALLED_S

    def do_GET(self) -> None:
        """The page."""
        if self._is_known():
            nonce = secrets.token_urlsafe(18)
            self._send(200, "text/html", self.served.html(nonce), nonce)

    def do_POST(self) -> None:
        """An answer, which ends it where it is one."""
        size = self.headers.get("Content-Length", "")
        if not self._is_known() or not self._is_own():
            return
        if not (size.isascii() and size.isdecimal()) or len(size) > 6 or int(size) > MAX_BODY:
            self._send(413, "text/plain", "the answer is too large")
            return
        data = self.rfile.read(int(size))
        with self.served.taking:
            self._take(data)

    def _take(self, data: bytes) -> None:
        if self.served.answered.is_set():
            self._send(410, "text/plain", "it has been answered")
            return
        try:
            self.served.answer = self.served.take(data)
        except PageAnswerRefused as refused:
            self._send(400, "text/plain", str(refused))
            return
        self._send(200, "text/plain", "Done: this page can be closed.")
        self.served.answered.set()

    def _is_known(self) -> bool:
        """Whether the browser asks the host that it believes to, for the one path."""
        hosts = self.headers.get_all("Host", [])
        path = self.path.encode(errors="surrogateescape")
        known = hosts == [f"{HOST}:{self.served.port}"] and secrets.compare_digest(
            path, f"/{self.served.secret}".encode()
        )
        if not known:
            self._send(404, "text/plain", "nothing is here")
        return known

    def _is_own(self) -> bool:
        """Whether the page itself says it, and no other."""
        own = self.headers.get_all("Origin", []) == [self.served.origin]
        own = own and self.headers.get_content_type() == "application/json"
        if not own:
            self._send(403, "text/plain", "only the page itself may answer")
        return own

    def _send(self, status: int, kind: str, body: str, nonce: str | None = None) -> None:
        data = body.encode()
        rules = ["default-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"]
        if nonce is not None:
            rules += [f"script-src 'nonce-{nonce}'", f"style-src 'nonce-{nonce}'", "connect-src 'self'"]
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(data))),
            ("Content-Security-Policy", "; ".join(rules)),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def version_string(self) -> str:
        """Nothing of what it is made of."""
        return "aetheris"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """Its URL has a secret."""
