"""A service's own name: the lock that proves a predecessor's end, and a group in which nobody else has it.

The executor does not ask here: its name is claimed in the log (tool_executor.identity).
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import structlog

from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.refusal import WorkerIdTaken
from aetheris.runtime.log.interface import Tenure
from aetheris.runtime.log.names import unclaimed
from aetheris.runtime.process.installation import worker_name
from aetheris.runtime.process.lifecycle import Stopped
from aetheris.runtime.process.lock import Lock, locked, opened
from aetheris.runtime.process.runtime import Runtime

_log = structlog.get_logger(__name__)

PATIENCE_S = 10.0
"""How long a predecessor on the same folder that is still draining is waited for."""

_PAUSE_S = 0.05


@asynccontextmanager
async def living(on: Runtime, group: str, stop: asyncio.Event) -> AsyncGenerator[Tenure]:
    """Live under the name of the settings, as a member of `group`.

    Raises:
        SettingInvalid: AETHERIS_WORKER_ID is no name.
        Stopped: `stop` was set before.
        WorkerIdTaken: another process lives under it.
    """
    name = worker_name(on.settings)
    on.health.add("worker", lambda: f"waits until nobody else lives as {name}")
    lock = await _taken(on.settings.data / "workers" / on.service / f"{name}.lock", name, on.clock, stop)
    tenure = _Kept(lock)
    try:
        await unclaimed(
            partial(on.log.members, group),
            name,
            tenure.former,
            clock=on.clock,
            session_timeout_s=on.settings.session_timeout_s,
            stopped=stop.is_set,
        )
        if stop.is_set():
            raise Stopped
        yield tenure
    finally:
        if lock is not None:
            lock.close()


class _Kept:
    """In the lock's file, as far as the folder takes it: without it a successor waits for the session."""

    def __init__(self, lock: Lock | None) -> None:
        self._lock = lock
        self.former = lock.former if lock is not None else ()

    def hold(self, incarnation: str) -> None:
        try:
            if self._lock is not None:
                self._lock.hold(incarnation)
        except OSError as error:
            _report(error)


async def _taken(path: Path, name: str, clock: Clock, stop: asyncio.Event) -> Lock | None:
    """The lock of the name; None where the folder takes no file."""
    impatient_s = clock.monotonic() + PATIENCE_S
    try:
        descriptor = opened(path)
        while not locked(descriptor):
            if stop.is_set():
                raise Stopped
            if clock.monotonic() >= impatient_s:
                raise WorkerIdTaken(f"another process lives as {name}: give this one another AETHERIS_WORKER_ID")
            await clock.sleep(_PAUSE_S)
        return Lock(descriptor)
    except OSError as error:
        _report(error)
        return None


def _report(error: OSError) -> None:
    _log.warning("the data folder keeps no lock: a successor waits for the session", error=type(error).__name__)
