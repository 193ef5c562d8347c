"""Threads in which blocking tools and probes run: one for each call, and so many that nobody waits for any more.

A thread can't be ended: one whose call has timed out lives on until it returns. Where too many do, nothing is begun.
"""

import asyncio
import contextvars
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from aetheris.sdk.outcomes import NotExecuted
from aetheris.sdk.remains import know

Refused = Callable[[str, Mapping[str, int]], None]
"""Hears which tool was refused, and which ones' threads live on, with how many."""


class UnraisableEnd(Exception):
    """Stands for what may not be raised in an event loop: it would end the loop, or the task in silence."""


class Threads:
    """Those of a process."""

    def __init__(self, most_left: int = 64) -> None:
        self.most_left = most_left
        self.refused: Refused = lambda _name, _left: None
        self._left: dict[threading.Thread, str] = {}

    @property
    def left(self) -> int:
        """How many run though nobody waits for them."""
        return len(self._left)

    async def run(self, function: Callable[[], Any], name: str) -> Any:
        """Run in a thread of its own: one that hangs takes no pool's slot, and doesn't hold up the process's end.

        Raises:
            NotExecuted: too many run that nobody waits for any more.
        """
        if self.left >= self.most_left:
            self._refuse(name)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                value = context.run(function)
            except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
                _report(loop, future, error, None)
            else:
                _report(loop, future, None, value)
            finally:
                over.set()
                self._left.pop(thread, None)

        over = threading.Event()
        thread = threading.Thread(target=work, name="tool", daemon=True)
        know(thread)
        thread.start()
        try:
            return await future
        except asyncio.CancelledError:
            self._leave(thread, name, over)
            raise

    def _leave(self, thread: threading.Thread, name: str, over: threading.Event) -> None:
        """Nobody waits for it any more; it may end at this very moment."""
        self._left[thread] = name
        if over.is_set():
            self._left.pop(thread, None)

    def _refuse(self, name: str) -> None:
        left = Counter(list(self._left.values()))
        self.refused(name, left)
        most = ", ".join(f"{tool} ({count})" for tool, count in left.most_common(3))
        raise NotExecuted(f"{left.total()} threads of calls that timed out still run here, the most of {most}")


THREADS = Threads()


def _report(
    loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", error: BaseException | None, value: Any
) -> None:
    def tell() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            future.set_exception(error)
        else:
            future.set_exception(type(type(error).__name__, (UnraisableEnd,), {})())

    with suppress(RuntimeError):  # the loop has been closed: nobody waits any more
        loop.call_soon_threadsafe(tell)
