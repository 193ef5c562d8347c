"""The process that keeps the embedded system running: starts, restarts and ends its parts.

Run as `python -m aetheris.cli.embedded.supervisor DATA [--detach]`. One per data folder: it holds a lock on
`supervisor.lock` for as long as it lives. Its children die with it, even if it is killed, and what they leave running
is killed before they are started again (Linux).
"""

import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO

from aetheris.cli.embedded.forks import Forked, Template, runs_module
from aetheris.cli.embedded.orphans import adopt, kill_orphans
from aetheris.cli.embedded.plan import PartState, Plan, ProcessSpec, State, log_path
from aetheris.cli.embedded.processes import kill_group, spawn
from aetheris.runtime.base.refusal import REFUSED_STATUS

BACKOFF_FIRST_S = 0.1
BACKOFF_LAST_S = 5.0
BACKOFF_RESET_AFTER_S = 10.0
LOG_KEPT_BYTES = 16 * 1024 * 1024
_POLL_S = 0.05  # while servers are starting; afterwards signals wake the loop
_SAVE_AGAIN_S = 1.0
_ALREADY_RUNNING = 3


def next_backoff(previous_s: float, uptime_s: float) -> float:
    """How long to wait before a restart: not at all after a process that held out; then it doubles."""
    if uptime_s >= BACKOFF_RESET_AFTER_S:
        return 0.0
    if previous_s == 0:
        return BACKOFF_FIRST_S
    return min(2 * previous_s, BACKOFF_LAST_S)


class Child:
    """One part: its process, and when it is to be started again."""

    def __init__(self, part: ProcessSpec, data: Path, former: PartState, template: Template) -> None:
        self.part = part
        self._template = template
        self.state = PartState(part.name, incarnation=former.incarnation)
        self.due: float | None = 0.0  # on the monotonic clock; None while it runs
        self._log = log_path(data, part.name)
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._started = 0.0
        self._backoff_s = 0.0

    def start(self) -> None:
        """Start the process; one that can't be started counts as one that exited."""
        with suppress(OSError):  # a disk that is full, or may not be written: what runs is worth more than its log
            _rotate(self._log)
        self._started = time.monotonic()
        incarnation = self.state.incarnation + 1
        self.due = None
        try:
            self._process = self._begun()
        except OSError as error:
            _say(f"{self.part.name} can't be started: {error.strerror}")
            self.state = PartState(self.part.name, None, incarnation)
            self._schedule()
            return
        self.state = PartState(self.part.name, self._process.pid, incarnation, time.time())
        _say(f"{self.part.name} started, incarnation {incarnation}, pid {self._process.pid}")

    def _begun(self) -> subprocess.Popen[bytes] | Forked:
        argv, env = self.part.argv, self.part.env
        if self._template.may_fork(argv):
            return self._template.fork(argv[-1], log=self._log, env=env)
        return spawn(argv, log=self._log, env={**os.environ, **env})

    def reap(self) -> bool:
        """Whether the process has ended since it was last asked; if so, and unless it refused, it will be restarted."""
        if self._process is None or (code := self._process.poll()) is None:
            return False
        kill_group(self._process.pid)
        self._gone(code)
        if code == REFUSED_STATUS:
            self._backoff_s = 0.0
            _say(f"{self.part.name} exited with {code}: another start would end the same, so there is none")
            return True
        if code == -signal.SIGKILL:
            self._backoff_s = 0.0  # it came from outside, and says nothing of whether the next one will hold out
        self._schedule()
        _say(f"{self.part.name} exited with {code}, next start in {self._backoff_s:.1f} s")
        return True

    @property
    def pid(self) -> int | None:
        """Its process, until it was seen to have ended."""
        return self._process.pid if self._process is not None else None

    def terminate(self) -> None:
        """SIGTERM, if it runs."""
        self.due = None
        if self._process is not None:
            self._process.terminate()

    def await_end(self, deadline: float) -> None:
        """Wait until the deadline on the monotonic clock, then SIGKILL to the whole group."""
        if self._process is None:
            return
        pid = self._process.pid
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _say(f"{self.part.name} did not end in time and is killed")
        kill_group(pid)
        self._gone(self._process.wait())

    def _gone(self, code: int) -> None:
        self._process = None
        self.state = PartState(self.part.name, None, self.state.incarnation, None, code)

    def _schedule(self) -> None:
        now = time.monotonic()
        self._backoff_s = next_backoff(self._backoff_s, now - self._started)
        self.due = now + self._backoff_s


class Signals:
    """Turns SIGCHLD, SIGTERM and SIGINT into something to wait for."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _wake_only)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # outlives the terminal that it was started from

    def wait(self, timeout_s: float | None) -> frozenset[int]:
        """The signals that came, at once if there are any; none if the time is over."""
        readable, _, _ = select.select([self._read], [], [], timeout_s)
        return frozenset(os.read(self._read, 4096)) if readable else frozenset()


def _wake_only(number: int, frame: FrameType | None) -> None:
    """The number went into the pipe; without a handler the kernel would drop or obey the signal."""


class Supervisor:
    """Keeps every part of a plan running until it is told to end."""

    def __init__(self, plan: Plan, data: Path) -> None:
        former = State.load(data)
        known: Mapping[str, PartState] = former.parts if former else {}
        self._plan = plan
        self._data = data
        self._template = Template()
        self._children = [Child(p, data, known.get(p.name, PartState(p.name)), self._template) for p in plan.parts]
        self._starting = self._of_kind("server")
        self._unsaved: str | None = None
        """Why state.json does not say what runs now."""

    def run(self, signals: Signals) -> None:
        """Returns once all parts have ended, after a SIGTERM or SIGINT."""
        adopt()
        self._save(os.getpid())
        received: frozenset[int] = frozenset()
        self._step()
        if any(runs_module(child.part.argv) for child in self._children):
            self._template.load()  # while the servers start
        while not received & {signal.SIGTERM, signal.SIGINT}:
            self._step()
            received = signals.wait(self._idle_s())
        self._stop()

    def _step(self) -> None:
        """Reap what ended, start what is due, let services in once the servers are ready."""
        ended = [child for child in self._children if child.reap()]
        if ended:
            self._kill_orphans()
        self._starting = [child for child in self._starting if not child.part.is_ready()]
        due = [child for child in self._allowed() if child.due is not None and child.due <= time.monotonic()]
        for child in due:
            child.start()
        if ended or due or self._unsaved is not None:
            self._save(os.getpid())

    def _allowed(self) -> Sequence[Child]:
        return self._of_kind("server") if self._starting else self._children

    def _idle_s(self) -> float | None:
        if self._starting:
            return _POLL_S
        dues = [child.due for child in self._children if child.due is not None]
        if self._unsaved is not None:
            dues.append(time.monotonic() + _SAVE_AGAIN_S)
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    def _stop(self) -> None:
        """Services first, together; then the servers in the reverse order of their start."""
        self._end(self._of_kind("service"))
        self._kill_orphans()
        for server in reversed(self._of_kind("server")):
            self._end([server])
        self._save(None)
        _say("ended")

    def _end(self, children: Sequence[Child]) -> None:
        started = time.monotonic()
        for child in children:
            child.terminate()
        for child in children:
            child.await_end(started + child.part.stop_within_s)

    def _kill_orphans(self) -> None:
        running = [child for child in self._children if child.pid is not None]
        names = {name for child in running if (name := child.part.env.get("AETHERIS_WORKER_ID")) is not None}
        killed = kill_orphans({child.pid for child in running if child.pid is not None}, names)
        if killed:
            _say(f"killed what was left running: {sorted(killed)}")

    def _of_kind(self, kind: str) -> list[Child]:
        return [child for child in self._children if child.part.kind == kind]

    def _save(self, pid: int | None) -> None:
        """Best effort: what runs goes on where the folder is full, and is written down once there is room."""
        try:
            self._state(pid).save(self._data)
        except OSError as error:
            if self._unsaved is None:
                _say(f"state.json can't be written: {error.strerror}; everything goes on")
            self._unsaved = error.strerror or type(error).__name__
        else:
            self._unsaved = None

    def _state(self, pid: int | None) -> State:
        plan, parts = self._plan, {child.part.name: child.state for child in self._children}
        return State(pid, plan.kafka, plan.redis, plan.gateway, parts, plan.console)


def lock_path(data: Path) -> Path:
    """The file whose lock says that a supervisor runs; its content is the pid."""
    return data / "supervisor.lock"


def is_locked(lock: IO[str]) -> bool:
    """Whether a supervisor holds the lock: asked of the kernel, so a dead one's pid misleads nobody."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def main(arguments: Sequence[str]) -> int:
    """DATA, and --detach to leave the caller's session."""
    data = Path(arguments[0])
    with lock_path(data).open("a") as lock:
        if not _take(lock):
            _say("another supervisor runs on this folder")
            return _ALREADY_RUNNING
        lock.truncate(0)  # at once: nobody may take the former supervisor's pid for ours
        if "--detach" in arguments and not _leave():
            return 0
        lock.write(str(os.getpid()))
        lock.flush()
        Supervisor(Plan.load(data), data).run(Signals())
    return 0


def _take(lock: IO[str]) -> bool:
    """Who only asks `is_locked` holds the lock for a moment: ask a few times."""
    for _ in range(10):
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.02)
    return False


def _leave() -> bool:
    """Leave the caller's session by a fork, which shares the lock; False in the process that stays behind."""
    if os.fork():
        return False
    os.setsid()
    return True


def _rotate(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_KEPT_BYTES:
        log.replace(log.with_suffix(".log.1"))


def _say(line: str) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    with suppress(OSError):
        sys.stderr.write(f"{now}Z {line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
