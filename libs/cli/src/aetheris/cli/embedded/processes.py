"""Starting and ending child processes, and locks between processes."""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)  # loaded here: nothing may be imported between fork and exec


def spawn(
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    death_signal: int = signal.SIGKILL,
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own that ends with this process, its output appended to `log`.

    Raises: OSError.
    """
    parent = os.getpid()

    def before_exec() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        die_with(parent, death_signal)

    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if env is None else dict(env),
            start_new_session=True,
            preexec_fn=before_exec,  # noqa: PLW1509 - prctl must run in the child; the supervisor has one thread
        )


def end(child: subprocess.Popen[bytes], grace_s: float) -> int:
    """SIGTERM, then SIGKILL to the whole group after the grace; returns the exit code."""
    child.terminate()
    try:
        code = child.wait(grace_s)
    except subprocess.TimeoutExpired:
        code = None
    kill_group(child.pid)
    return child.wait() if code is None else code


def kill_group(pid: int) -> None:
    """SIGKILL to what is left of the session that `spawn` made."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


@contextmanager
def exclusive(lock: Path) -> Generator[None]:
    """Hold a lock on a file, waiting for it; the kernel frees it when the process ends."""
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def die_with(parent: int, death_signal: int) -> None:
    """Called by a child: end by that signal when its parent has ended (Linux)."""
    if sys.platform != "linux":
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:  # it ended between fork and prctl
        os._exit(1)
