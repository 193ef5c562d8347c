"""Services by fork of a process that has imported what all of them need: importing is most of a start (Linux).

A fork shares those modules' memory too. Modules whose files have changed since are not passed on: `may_fork` says so.
"""

import gc
import os
import runpy
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from aetheris.cli.embedded.processes import die_with

COMMON = (
    "aetheris.runtime.process.lean",  # before all others
    "aetheris.runtime.process.lifecycle",
    "aetheris.runtime.process.runtime",
    "aetheris.runtime.worker.loop",
    "aetheris.sdk.loader",
)
"""What every service imports."""
_HANDLED = (signal.SIGCHLD, signal.SIGTERM)
"""What the supervisor has handlers for, beside SIGINT, which is Python's own at a start."""


def run_module(name: str) -> tuple[str, ...]:
    """The command that runs a module by this very Python; what lies in the working folder is no module to it (-P)."""
    return (sys.executable, "-P", "-m", name)


def runs_module(argv: Sequence[str]) -> bool:
    """Whether a command is one of `run_module`, on Linux."""
    return sys.platform == "linux" and len(argv) == 4 and tuple(argv) == run_module(argv[-1])


class Forked:
    """A child that was forked, with what the supervisor needs of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended.

        Raises:
            subprocess.TimeoutExpired.
        """
        if self.poll() is None:
            process = os.pidfd_open(self.pid)
            try:
                select.select([process], [], [], timeout)
            finally:
                os.close(process)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("a forked service", timeout or 0.0)
        return code

    def terminate(self) -> None:
        """SIGTERM, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


class Template:
    """What all services import, in this process, and how its files were then."""

    def __init__(self) -> None:
        self._files: Mapping[str, int] = {}

    def load(self) -> None:
        """Import it; a few tenths of a second, the first time."""
        if self._files:
            return
        for name in COMMON:
            import_module(name)
        self._files = {path: _changed_ns(path) for path in _sources()}
        gc.collect()
        gc.freeze()  # the collector would write to what is shared
        gc.enable()  # `lean` expects `lifecycle.run` to do that

    def may_fork(self, argv: Sequence[str]) -> bool:
        """Whether a fork of this process does what the command would."""
        if not runs_module(argv):
            return False
        self.load()
        return all(_changed_ns(path) == at for path, at in self._files.items())

    def fork(self, module: str, *, log: Path, env: Mapping[str, str]) -> Forked:
        """Run a module as `processes.spawn` would run `python -P -m module`, with `env` on top of this environment.

        Raises: OSError.
        """
        parent = os.getpid()
        log.parent.mkdir(parents=True, exist_ok=True)
        _flush()
        with log.open("ab") as output:
            pid = os.fork()
            if pid == 0:
                _become(module, parent, output.fileno(), env)
        return Forked(pid)


def _become(module: str, parent: int, output: int, env: Mapping[str, str]) -> NoReturn:
    """Nothing may return into the supervisor's frames, nor be finalised there: they hold its lock and its pipe."""
    code = 1
    try:
        os.setsid()
        die_with(parent, signal.SIGKILL)
        _take_over_signals()
        _take_over_files(output)
        os.environ.update(env)
        sys.argv = [module]
        gc.disable()
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = _status(end)
    except BaseException:  # noqa: BLE001  the end of a process like any other
        traceback.print_exc()
    finally:
        with suppress(Exception):
            _flush()
        os._exit(code)


def _status(end: SystemExit) -> int:
    """As Python's own end has it: what is no number is said, and is a failure."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    with suppress(OSError):
        print(end.code, file=sys.stderr)  # noqa: T201  the log of the process
    return 1


def _take_over_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in _HANDLED:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _take_over_files(output: int) -> None:
    """No input, the log as output, and nothing else of the supervisor's: its lock above all."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nowhere, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):  # the listing's own is closed already
                os.close(int(name))


def _flush() -> None:
    with suppress(OSError):  # a disk that is full
        sys.stdout.flush()
        sys.stderr.flush()


def _sources() -> list[str]:
    files = (getattr(module, "__file__", None) for module in tuple(sys.modules.values()))
    return [file for file in files if file is not None]


def _changed_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
