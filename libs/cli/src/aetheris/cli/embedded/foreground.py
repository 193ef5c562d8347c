"""An executor in the foreground of a terminal: its input is the terminal's, and it starts anew when a file changes.

A call under way at a reload finishes first, if it does within AETHERIS_TOOL_DRAIN_S; else its executor ends without it,
and it is settled as after a crash. Whoever stands at a breakpoint is not hurried: nothing ends before he goes on.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from aetheris.cli.embedded.breakpoints import HOOK
from aetheris.cli.embedded.errors import NotRunningError
from aetheris.cli.embedded.forks import run_module
from aetheris.cli.embedded.plan import Plan, State
from aetheris.cli.embedded.processes import die_with
from aetheris.cli.embedded.sources import Sources
from aetheris.cli.loglines import LogLine, log_line
from aetheris.verifier.apart import RECORD_KEYS, SUBJECT_KEYS

_LOOK_EVERY_S = 0.3
_OWN = ("AETHERIS_WORKER_ID", "AETHERIS_HEALTH_PORT", "AETHERIS_HTTP_PORT", "AETHERIS_TOOLS_FOLDER", *RECORD_KEYS)
"""What each process of a system has for itself."""

Say = Callable[[str], None]


def environment(data: Path) -> dict[str, str]:
    """The settings that the services of a running system share, and what opens hidden values; where another's servers
    are named, nothing.

    Raises:
        NotRunningError: nothing runs on the data folder, and no Kafka is named.
    """
    state = State.load(data.resolve())
    if state is not None and state.pid is not None:
        services = [part for part in Plan.load(data.resolve()).parts if part.kind == "service"]
        shared = {name: value for name, value in services[0].env.items() if name not in _OWN}
        return shared | {name: part.env[name] for part in services for name in SUBJECT_KEYS if part.env.get(name)}
    if "AETHERIS_KAFKA" in os.environ:
        return {}
    raise NotRunningError(f"Nothing runs on {data}", "Start it with `aetheris up --executors 0`.")


class Foreground:
    """The executor, and what it has started anew for."""

    def __init__(self, env: Mapping[str, str], say: Say, show: Callable[[LogLine], None]) -> None:
        own = {"PYTHONBREAKPOINT": HOOK, "AETHERIS_TOOLS_FOLDER": os.getcwd()}
        self._env = {**own, **os.environ, **env, "PYTHONUNBUFFERED": "1"}
        self._say = say
        self._show = show
        self._process = self._started()

    def run(self, sources: Sources | None) -> int:
        """Until it ends, or Ctrl-C; with `sources` it starts anew whenever they change. Its exit code."""
        try:
            while True:
                ended = self._ended_within(_LOOK_EVERY_S if sources is not None else None)
                if sources is None:
                    return self._process.returncode
                changed = sources.changed()
                if changed:
                    self._reload(changed)
                elif ended and self._said_its_end():
                    self._say("waits for a change")
        except KeyboardInterrupt:
            return self._end()

    def _reload(self, changed: Sequence[str]) -> None:
        self._say(f"{', '.join(changed)} changed: starts anew once what runs has ended")
        with suppress(ProcessLookupError):
            self._process.terminate()
        self._process.wait()
        self._process = self._started()

    def _ended_within(self, timeout_s: float | None) -> bool:
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        if timeout_s is not None:
            time.sleep(timeout_s)
        return True

    def _said_its_end(self) -> bool:
        """True once for each process."""
        reported, self._told = self._told, True
        return not reported

    def _started(self) -> subprocess.Popen[bytes]:
        parent = os.getpid()
        self._told = False
        process = subprocess.Popen(
            run_module("aetheris.tool_executor"),
            env=self._env,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: die_with(parent, signal.SIGTERM),  # noqa: PLW1509 - prctl must run in the child
        )
        threading.Thread(target=self._relay, args=(process,), daemon=True).start()
        return process

    def _relay(self, process: subprocess.Popen[bytes]) -> None:
        """Its log, for humans; what a breakpoint says is on its standard output, which is the terminal's."""
        if process.stderr is not None:
            for raw in process.stderr:
                self._show(log_line("worker", raw.decode(errors="replace").rstrip("\n"), ""))

    def _end(self) -> int:
        """In good order; another Ctrl-C kills it."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            return self._process.wait()
        except KeyboardInterrupt:
            self._process.kill()
            return self._process.wait()
