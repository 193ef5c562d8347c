"""An event loop whose time passes only when nothing else can happen."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

EPOCH_S = 1000.0


class DeadlockedError(Exception):
    """Everybody waits, and nothing is due."""


class _Selector(selectors.SelectSelector):
    """Waits by moving the time on; there is no I/O to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = EPOCH_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise DeadlockedError
        self.now_s += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's own, in virtual time: the same order of the same callbacks each time."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual.now_s


def run_virtually(work: Coroutine[Any, Any, None]) -> None:
    """Run to its end in virtual time.

    Raises:
        Stuck: it waits for what never comes.
        Exception: what `work` raises.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(work)
