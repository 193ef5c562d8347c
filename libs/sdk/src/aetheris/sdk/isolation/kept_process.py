"""A process of somebody else's code, below its keeper: how it is started, what it is given, how all of it is ended."""

import asyncio
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from aetheris.sdk import inheritance, remains
from aetheris.sdk.isolation import frames
from aetheris.sdk.isolation.frames import BadFrame

START_WITHIN_S = 60.0
KILL_WITHIN_S = 2.0
"""How long a process that is killed, or has said all, is awaited; then its host is ended, and all calls of it."""
_ALWAYS_GIVEN = (
    *("PATH", "HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE", "AETHERIS_SHELL_PROGRAMS", "AETHERIS_LOCK_HELD"),
)
"""Variables that hold no credential, and are given where they are set."""
_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from importlib import import_module
from aetheris.sdk.isolation.keeper import main
executor, user, group, *descriptors = map(int, sys.argv[3:])
main(import_module(sys.argv[2]).main, executor, (user, group), tuple(descriptors))
"""


class HostFailed(Exception):
    """The process of a module's tools can't be started, or can't load them; the message says which and why."""


@dataclass(frozen=True, slots=True)
class HostSetup:
    """What every process of tools is given, variables by name and a user of the system; and what is closed to it."""

    env: Sequence[str] = ()
    user: str | None = None
    closed: Sequence[Path] = ()
    """Files that they can't read, where Linux can see to that."""

    def environment(self) -> dict[str, str]:
        """Nothing but what is named."""
        return {name: os.environ[name] for name in (*_ALWAYS_GIVEN, *self.env) if name in os.environ}

    def identity(self) -> tuple[int, int]:
        """The user and the group that they run as; -1 and -1: as who starts them.

        Raises:
            HostFailed: the system doesn't know the user.
        """
        if self.user is None:
            return -1, -1
        try:
            found = pwd.getpwnam(self.user)
        except KeyError:
            raise HostFailed("AETHERIS_TOOL_USER names no user of this system") from None
        return found.pw_uid, found.pw_gid


class KeptProcess:
    """One from its start to its end, and to that of all that it has started, which its keeper tells."""

    def __init__(self, keeper: "subprocess.Popen[Any]", lifeline: socket.socket) -> None:
        self._keeper = keeper
        self._lifeline = lifeline
        self._loop = asyncio.get_running_loop()
        self._gone = asyncio.Event()
        self.is_over = False
        self.nothing_left = False
        """Whether nothing lives that it has started: surely."""
        lifeline.setblocking(False)
        self._loop.add_reader(lifeline.fileno(), self._keeper_ended)

    def end(self) -> None:
        """Have it killed, and all that it has started."""
        if self.is_over:
            return
        self.is_over = True
        self._lifeline.shutdown(socket.SHUT_WR)
        self._keeper.send_signal(signal.SIGCONT)  # what runs below may have stopped it

    async def over_within(self, within_s: float) -> None:
        """Wait for the end of all that it has started; no longer than that."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._gone.wait()
        self._let_go()

    def _keeper_ended(self) -> None:
        self.end()
        self._let_go()
        self.nothing_left = self._keeper.wait() == 0
        self._gone.set()
        remains.forget_child(self._keeper.pid)

    def _let_go(self) -> None:
        if self._lifeline.fileno() >= 0:
            self._loop.remove_reader(self._lifeline.fileno())
            self._lifeline.close()


@dataclass(frozen=True, slots=True)
class Started:
    """A keeper that has just been started, and our ends of what it and the process below it hold."""

    keeper: "subprocess.Popen[Any]"
    lifeline: socket.socket
    orders: socket.socket
    loading: socket.socket


def start(
    source: str,
    program: str,
    given: HostSetup,
    orders_kind: socket.SocketKind,
    env: Mapping[str, str] = MappingProxyType({}),
) -> Started:
    """Start a keeper, with a process of `program`, a module with a `main`, below it.

    Args:
        env: variables beside those that it is given anyway.

    Raises:
        HostFailed.
    """
    identity = given.identity()
    lifeline, their_lifeline = socket.socketpair()
    orders, their_orders = socket.socketpair(socket.AF_UNIX, orders_kind)
    loading, their_loading = socket.socketpair()
    passed = (their_lifeline, their_orders, their_loading)
    try:
        process = _spawned(program, {**given.environment(), **env}, identity, *passed)
    except (OSError, subprocess.SubprocessError) as error:
        for ours in (lifeline, orders, loading):
            ours.close()
        raise HostFailed(f"{source}: its process can't be started: {type(error).__name__}") from None
    finally:
        for one in passed:
            one.close()
    remains.know_child(process.pid)
    return Started(process, lifeline, orders, loading)


async def load_into(
    loading: socket.socket, source: str, folder: Path | None, given: HostSetup, holds: str
) -> Sequence[Mapping[str, Any]]:
    """Have a module loaded there; what it has of what it `holds`, in its own words.

    Raises:
        HostFailed.
    """
    try:
        async with asyncio.timeout(START_WITHIN_S):
            reader, writer = await asyncio.open_unix_connection(sock=loading)
            asked = {
                "source": source,
                "folder": str(folder or ""),
                "kept": inheritance.kept(),
                "closed": [str(one.absolute()) for one in given.closed],
            }
            writer.write(frames.packed(asked))
            loaded = await frames.next_of(reader)
            writer.close()
    except (TimeoutError, BadFrame, OSError) as error:
        raise HostFailed(f"{source}: its process does not load it: {type(error).__name__}") from None
    if loaded is None or loaded.get("faults") or not isinstance(loaded.get(holds), list):
        raise HostFailed(_fault(source, loaded))
    return cast("Sequence[Mapping[str, Any]]", loaded[holds])


def _spawned(
    program: str, env: Mapping[str, str], identity: tuple[int, int], *passed: socket.socket
) -> "subprocess.Popen[Any]":
    path = json.dumps([str(Path(one).absolute()) for one in sys.path])
    descriptors = [one.fileno() for one in passed]
    numbers = (os.getpid(), *identity, *descriptors)
    return subprocess.Popen(
        (sys.executable, "-P", "-c", _START, path, program, *map(str, numbers)),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=descriptors,
        start_new_session=True,
    )


def _fault(source: str, loaded: Mapping[str, Any] | None) -> str:
    if loaded is None:
        return f"{source}: its process ended while it was loaded"
    faults = loaded.get("faults")
    return str(cast("list[Any]", faults)[0]) if isinstance(faults, list) and faults else f"{source}: has no tools"
