"""The lock on an executor's name: whoever has it knows that those who are named in its file have ended.

It belongs to this process and to every child that inherits it: it is free once all of them have ended, never before.
What those start may have closed it; they are known by `MARK` in their environment, and waited for too.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

import structlog

from aetheris.protocol.base.ids import check_name
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.refusal import WorkerIdTaken
from aetheris.runtime.process.lifecycle import Stopped
from aetheris.runtime.process.lock import Lock, locked, opened, owner
from aetheris.sdk.inheritance import kept_by_children

_log = structlog.get_logger(__name__)

PATIENCE_S = 10.0
"""How long a predecessor that is still draining is waited for."""

MARK = "AETHERIS_LOCK_HELD"
"""In the environment of whatever this process starts: which lock it is answerable to."""

_PAUSE_S = 0.05
_LOOK_EVERY_S = 0.25


async def taken(
    data: Path,
    worker_id: str,
    *,
    clock: Clock,
    stop: asyncio.Event,
    report: Callable[[str], None],
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
    descriptor = opened(path)
    orphans = _Orphans(worker_id, report)
    try:
        await _wait(path, descriptor, clock=clock, stop=stop, orphans=orphans, patience_s=patience_s)
    except BaseException:
        os.close(descriptor)
        raise
    kept_by_children(descriptor)
    lock = Lock(descriptor)
    mark = _mark(descriptor)
    while pids := await asyncio.to_thread(_marked, mark):
        orphans.report(pids)
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
    while not locked(descriptor):
        await _pause(clock, stop, _PAUSE_S)
        if clock.monotonic() < impatient_s:
            continue
        pids = await asyncio.to_thread(holders, path)
        if locked(descriptor):
            return
        holder = owner(descriptor)
        if not pids or holder in pids or _is_unreadable(holder):
            raise WorkerIdTaken(f"another process runs as {path.stem}: give this one another AETHERIS_WORKER_ID")
        orphans.report(pids)
        await _pause(clock, stop, _LOOK_EVERY_S)


async def _pause(clock: Clock, stop: asyncio.Event, pause_s: float) -> None:
    if stop.is_set():
        raise Stopped
    await clock.sleep(pause_s)


class _Orphans:
    """Says what is being waited for, once for each change."""

    def __init__(self, worker_id: str, report: Callable[[str], None]) -> None:
        self._worker_id = worker_id
        self._report = report
        self._reported: Collection[int] = ()

    def report(self, pids: frozenset[int]) -> None:
        if pids == self._reported:
            return
        self._reported = pids
        _log.warning("waits for what the executor before it left running", worker_id=self._worker_id, pids=sorted(pids))
        self._report(f"waits for processes that the executor before it has started, and that may act: {sorted(pids)}")


def holders(path: Path) -> frozenset[int]:
    """The processes that have this file open, beside this one, as far as this user may know (Linux)."""
    this = path.stat()
    return frozenset(pid for pid in _others() if _has_open(pid, (this.st_dev, this.st_ino)))


def _is_unreadable(pid: int | None) -> bool:
    """Whether it lives and keeps to itself what it has open, as executors do from all but root."""
    try:
        os.listdir(f"/proc/{pid}/fd")
    except PermissionError:
        return True
    except OSError:
        pass
    return False


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
