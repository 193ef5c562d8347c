"""The commands that run the external servers; none of them is ours, and none deduplicates (docs/demo.md).

localstripe and Roundup run from small programs instead of their own commands: localstripe's listens on every
interface and keeps its state in a file that all its instances share; Roundup's refuses to run as root.
"""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

TRACKER_LOGIN = ("admin", "demo")

_STRIPE = """
import sys
from aiohttp import web
from localstripe.server import app, store
store.dump_to_disk = lambda: None
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]))
"""

_TRACKER = """
import sys
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIServer, make_server
from roundup.admin import AdminTool
from roundup.cgi.wsgi_handler import RequestDispatcher

home, port, password = sys.argv[1], int(sys.argv[2]), sys.argv[3]
settings = {
    "tracker_web": f"http://127.0.0.1:{port}/",
    "mail_domain": "localhost",
    "mail_host": "localhost",
    "mail_debug": f"{home}.mail",
    "web_use_tokenless_csrf_protection": "yes",
    "web_allowed_api_origins": "*",
}
install = ["install", "classic", "sqlite", ",".join(f"{name}={value}" for name, value in settings.items())]
for command in [] if Path(home).exists() else [install, ["initialise", password]]:
    sys.argv = ["roundup-admin", "-i", home, *command]
    if AdminTool().main():
        sys.exit("the tracker could not be set up")

class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128

make_server("127.0.0.1", port, RequestDispatcher(home), server_class=Server).serve_forever()
"""


class MissingServerError(Exception):
    """A server's package is not installed."""


def stripe(port: int) -> Sequence[str]:
    """localstripe, a payment service; its state lives as long as its process."""
    _check("localstripe")
    return [sys.executable, "-c", _STRIPE, str(port)]


def mail(port: int, maildir: Path) -> Sequence[str]:
    """aiosmtpd; each mail becomes a file of the Maildir."""
    _check("aiosmtpd")
    handler = ["-c", "aiosmtpd.handlers.Mailbox", str(maildir)]
    return [sys.executable, "-m", "aiosmtpd", "-n", "-l", f"127.0.0.1:{port}", *handler]


def tracker(port: int, home: Path) -> Sequence[str]:
    """Roundup with its classic tracker, on sqlite; set up at the first start."""
    _check("roundup")
    return [sys.executable, "-c", _TRACKER, str(home), str(port), TRACKER_LOGIN[1]]


def _check(package: str) -> None:
    if find_spec(package) is None:
        raise MissingServerError(f"{package} is not installed: run `uv sync --group outside`")
