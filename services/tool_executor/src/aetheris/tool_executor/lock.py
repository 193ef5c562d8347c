"""The lock on a worker's name: whoever has it knows that those who are named in its file have ended.

The lock is the kernel's (`flock`), and belongs to this process and to every child that inherits it: it is free once all
of them have ended, never before. What those start may have closed it; they are known by `MARK` in their environment,
and waited for too. The file says, a line each: `inode` of the file, so that a copy of the folder proves
nothing; `pid` of who has taken the lock; `held`, an incarnation that has held it.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from aetheris.protocol.base.ids import check_name
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.refusal import Refused
from aetheris.runtime.process.lifecycle import Stopped
from aetheris.tool_executor.inheritance import kept_by_children

_log = structlog.get_logger(__name__)

PATIENCE_S = 10.0
"""How long a predecessor that is still draining is waited for."""

MARK = "AETHERIS_LOCK_HELD"
"""In the environment of whatever this process starts: which lock it is answerable to."""

_PAUSE_S = 0.05
_LOOK_EVERY_S = 0.25
_TRIM_BYTES = 64 * 1024
_TRIM_LINES = 100


class WorkerIdTaken(Refused):
    """Somebody else lives under this worker_id, or may: the message says what to do."""

    code = "worker_id_taken"
    passes = True


class Lock:
    """A lock that is held. It is not closed: only the end of this process and of its children frees it."""

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

    def _append(self, line: str) -> None:
        # a line that a crash tore is ended first: it is nobody's
        os.pwrite(self._descriptor, f"\n{line}\n".encode(), os.fstat(self._descriptor).st_size)
        os.fsync(self._descriptor)

    def _trim(self, lines: Sequence[str]) -> None:
        kept = "".join(f"{line}\n" for line in lines).encode()
        os.pwrite(self._descriptor, kept + b"\n", 0)
        os.fsync(self._descriptor)
        os.ftruncate(self._descriptor, len(kept))


async def taken(
    data: Path,
    worker_id: str,
    *,
    clock: Clock,
    stop: asyncio.Event,
    tell: Callable[[str], None],
    patience_s: float = PATIENCE_S,
) -> Lock:
    """The lock of a name; a predecessor that is still draining is waited for, and so is whatever it left running.

    Args:
        tell: is told why it is being waited.

    Raises:
        WorkerIdTaken: another process has it after `patience_s`.
        Stopped: `stop` was set before.
        InvalidName: the worker_id is no name.
    """
    path = data / "workers" / f"{check_name(worker_id, 'worker_id')}.lock"
    descriptor = _opened(path)
    orphans = _Orphans(worker_id, tell)
    try:
        await _wait(path, descriptor, clock=clock, stop=stop, orphans=orphans, patience_s=patience_s)
    except BaseException:
        os.close(descriptor)
        raise
    kept_by_children(descriptor)
    lock = Lock(descriptor)
    mark = _mark(descriptor)
    while pids := await asyncio.to_thread(_marked, mark):
        orphans.tell(pids)
        await _pause(clock, stop, _LOOK_EVERY_S)
    os.environ[MARK] = mark
    return lock


async def _wait(
    path: Path,
    descriptor: int,
    *,
    clock: Clock,
    stop: asyncio.Event,
    orphans: "_Orphans",
    patience_s: float,
) -> None:
    """Until the lock is ours; orphans of an executor that has ended are waited for, it itself only for a while."""
    impatient_s = clock.monotonic() + patience_s
    while not _locked(descriptor):
        await _pause(clock, stop, _PAUSE_S)
        if clock.monotonic() < impatient_s:
            continue
        pids = await asyncio.to_thread(holders, path)
        if _locked(descriptor):
            return
        if not pids or _owner(descriptor) in pids:
            raise WorkerIdTaken(f"another process runs as {path.stem}: give this one another AETHERIS_WORKER_ID")
        orphans.tell(pids)
        await _pause(clock, stop, _LOOK_EVERY_S)


async def _pause(clock: Clock, stop: asyncio.Event, pause_s: float) -> None:
    if stop.is_set():
        raise Stopped
    await clock.sleep(pause_s)


class _Orphans:
    """Says what is being waited for, once for each change."""

    def __init__(self, worker_id: str, tell: Callable[[str], None]) -> None:
        self._worker_id = worker_id
        self._tell = tell
        self._told: Collection[int] = ()

    def tell(self, pids: frozenset[int]) -> None:
        if pids == self._told:
            return
        self._told = pids
        _log.warning("waits for what the executor before it left running", worker_id=self._worker_id, pids=sorted(pids))
        self._tell(f"waits for processes that the executor before it has started, and that may act: {sorted(pids)}")


def _owner(descriptor: int) -> int | None:
    """The process that took the lock last."""
    return next((int(line[4:]) for line in reversed(_read(descriptor)) if line.startswith("pid ")), None)


def holders(path: Path) -> frozenset[int]:
    """The processes that have this file open, beside this one, as far as this user may know (Linux)."""
    this = path.stat()
    return frozenset(pid for pid in _others() if _has_open(pid, (this.st_dev, this.st_ino)))


def _mark(descriptor: int) -> str:
    this = os.fstat(descriptor)
    return f"{this.st_dev}:{this.st_ino}"


def _marked(mark: str) -> frozenset[int]:
    """The processes that were started with this mark, and live."""
    wanted, found = f"{MARK}={mark}".encode(), set[int]()
    for pid in _others():
        with suppress(OSError):  # of another user, or gone; of one that has ended the environment is empty
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.add(pid)
    return frozenset(found)


def _others() -> Iterator[int]:
    with suppress(OSError):
        yield from (int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid())


def _has_open(pid: int, file: tuple[int, int]) -> bool:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                status = os.stat(f"/proc/{pid}/fd/{name}")
                if (status.st_dev, status.st_ino) == file:
                    return True
    return False


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return descriptor


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(descriptor: int) -> list[str]:
    data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    return [line for line in data.decode(errors="replace").splitlines() if line]
