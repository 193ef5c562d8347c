"""What a process leaves running comes to its supervisor, and is killed with it (Linux).

A tool's child that outlives its executor could act when the executor is known to have ended.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_WITHIN_S = 2.0
_PAUSE_S = 0.01
_OWNER = b"AETHERIS_WORKER_ID="


def adopt() -> None:
    """From now on this process is the parent of whatever its descendants leave behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_orphans(own: Collection[int], running: Collection[str]) -> frozenset[int]:
    """SIGKILL to every child but `own`, and to what those leave; who can't be killed yet is left after two seconds.

    Args:
        running: worker_ids of what goes on; what their environment was given to is theirs, and spared.

    Returns: the pids that were killed.
    """
    killed, until_s = set[int](), time.monotonic() + _WITHIN_S
    while orphans := [pid for pid in _children() if pid not in own and _owner(pid) not in running]:
        for pid in orphans:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > until_s:
            break
        time.sleep(_PAUSE_S)
    return frozenset(killed)


def _children() -> list[int]:
    if sys.platform != "linux":
        return []
    this = str(os.getpid())
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and _parent(name) == this]


def _parent(pid: str) -> str | None:
    with suppress(OSError):
        # "pid (command) state ppid …"; the command may hold anything
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1]
    return None


def _owner(pid: int) -> str | None:
    with suppress(OSError):
        given = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return next((one.removeprefix(_OWNER).decode() for one in given if one.startswith(_OWNER)), None)
    return None
