"""A lock on a name, in a file that says who has held it: whoever has the lock knows that those have ended.

The lock is the kernel's (`flock`). The file says, a line each: `inode` of the file, so that a copy of the folder proves
nothing; `pid` of who has taken the lock; `held`, an incarnation that has held it.
"""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

_TRIM_BYTES = 64 * 1024
_TRIM_LINES = 100


class Lock:
    """A lock that is held; the end of this process, and of every child that has it, frees it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        lines = _read(descriptor)
        inode = f"inode {os.fstat(descriptor).st_ino}"
        if lines[:1] != [inode]:
            os.ftruncate(descriptor, 0)
            lines = [inode]
            self._append(inode)
        elif os.fstat(descriptor).st_size > _TRIM_BYTES:
            self._trim([inode, *lines[-_TRIM_LINES:]])
        self.former: Sequence[str] = [line[5:] for line in lines if line.startswith("held ")]
        """The incarnations that have held it before, and have ended; the oldest first."""
        self._append(f"pid {os.getpid()}")

    def hold(self, incarnation: str) -> None:
        """On disk before it returns: whoever has the lock next knows that this incarnation has ended."""
        self._append(f"held {incarnation}")

    def close(self) -> None:
        """Free it before the process ends: only for whom nobody relies on the end itself."""
        os.close(self._descriptor)

    def _append(self, line: str) -> None:
        # a line that a crash tore is ended first: it is nobody's
        os.pwrite(self._descriptor, f"\n{line}\n".encode(), os.fstat(self._descriptor).st_size)
        os.fsync(self._descriptor)

    def _trim(self, lines: Sequence[str]) -> None:
        kept = "".join(f"{line}\n" for line in lines).encode()
        os.pwrite(self._descriptor, kept + b"\n", 0)
        os.fsync(self._descriptor)
        os.ftruncate(self._descriptor, len(kept))


def owner(descriptor: int) -> int | None:
    """The process that took the lock last."""
    return next((int(line[4:]) for line in reversed(_read(descriptor)) if line.startswith("pid ")), None)


def opened(path: Path) -> int:
    """The lock's file, made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return descriptor


def locked(descriptor: int) -> bool:
    """Whether the lock is ours; it is tried once."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(descriptor: int) -> list[str]:
    data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    return [line for line in data.decode(errors="replace").splitlines() if line]
