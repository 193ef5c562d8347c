"""Ports on 127.0.0.1 that a data folder keeps for as long as it lives."""

import fcntl
import json
import os
import random
import socket
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from aetheris.cli.embedded.errors import PortTakenError

# Below Linux's ephemeral range: an outgoing connection can't take a port while its owner restarts.
_FIRST, _LAST = 20_000, 32_000
_PATIENCE_S = 3.0
_POLL_S = 0.05
_DRAWN: set[int] = set()
"""By this process, which its own locks don't keep out."""


class Ports:
    """The port of each name, chosen once and kept in `ports.json`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "ports.json"
        self._asked: set[str] = set()
        self._ports: dict[str, int] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def get(self, name: str) -> int:
        """The port of that name; a free one is chosen at the first call."""
        self._asked.add(name)
        if name not in self._ports:
            self._ports[name] = free_port(taken=set(self._ports.values()))
            self._save()
        return self._ports[name]

    def keep(self, name: str, port: int) -> None:
        """Give that name the port that the user chose."""
        self._ports[name] = port
        self._save()

    def check_free(self) -> None:
        """Wait a moment for the ports that were asked for: a killed broker gives them back only as it dies.

        Raises: PortTakenError, if another process keeps listening on one.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while taken := [(name, port) for name, port in self.taken() if name in self._asked]:
            if time.monotonic() > deadline:
                name, port = taken[0]
                raise PortTakenError(
                    f"Port {port}, kept for {name}, is in use by another process",
                    f"End that process, or delete {self._file} to have new ports chosen.",
                )
            time.sleep(_POLL_S)

    def taken(self) -> list[tuple[str, int]]:
        """The names and ports on which another process listens, if nothing of this folder runs."""
        return [(name, port) for name, port in self._ports.items() if not is_free(port)]

    def _save(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        staged = self._file.with_suffix(".new")
        staged.write_text(json.dumps(self._ports, indent=1))
        staged.replace(self._file)


def free_port(taken: set[int] | None = None) -> int:
    """A port on 127.0.0.1 that nothing listens on now, and that nobody else draws as long as this process lives.

    Of this user's processes: between drawing a port and listening on it, another system that starts could take it.
    """
    candidates = random.SystemRandom().sample(range(_FIRST, _LAST), _LAST - _FIRST)
    return next(port for port in candidates if port not in (taken or set()) and is_free(port) and _drawn(port))


def _drawn(port: int) -> bool:
    """Whether it is ours now: the byte of that number is locked, until this process ends, however it does."""
    if port in _DRAWN:
        return False
    claims = _claims()
    if claims is not None:
        try:
            fcntl.lockf(claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
    _DRAWN.add(port)
    return True


@cache
def _claims() -> int | None:
    """The file whose bytes stand for ports; never closed, which would give all of them back. None: it can't be had."""
    with suppress(OSError):
        path = Path(tempfile.gettempdir()) / f"aetheris-ports-{os.getuid()}"
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    return None


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1:port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
