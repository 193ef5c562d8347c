"""Names what holds up the event loop: a tool that computes in an `async def`, a parse, a decision (docs/metrics.md)."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType

import structlog

from aetheris.runtime.telemetry.metrics import Metric, Metrics

BLOCKED_AFTER_S = 1.0
_BEAT_S = 0.25
_OURS = "aetheris."
_LOOP = "asyncio.runners"
"""What runs the loop: it is no part of what the loop runs."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Block:
    """Who holds up the loop: a tool, or a function of ours; in which line, and for how many seconds by now."""

    tool: str | None
    function: str
    at: str
    for_s: float


class Watchdog:
    """Looks at one event loop from a thread of its own; each block is told once."""

    def __init__(self, heard: Callable[[Block], None], after_s: float = BLOCKED_AFTER_S) -> None:
        self._heard = heard
        self._after_s = after_s
        self._tools: dict[CodeType, str] = {}

    def name(self, tools: Mapping[CodeType, str]) -> None:
        """Whose code it is, if one of these is what runs."""
        self._tools.update(tools)

    @contextmanager
    def watching(self) -> Generator[None]:
        """Look at the running loop for as long as this lasts."""
        loop, thread, over = asyncio.get_running_loop(), threading.get_ident(), threading.Event()
        beaten = [time.monotonic()]

        def beat() -> None:
            beaten[0] = time.monotonic()
            if not over.is_set():
                loop.call_later(_BEAT_S, beat)

        def look() -> None:
            looked = told = 0.0
            while not over.wait(self._after_s / 2):
                last, now = beaten[0], time.monotonic()
                is_first, looked = last != looked, last
                if now - last < self._after_s or last == told or is_first:  # at first the process itself may have slept
                    continue
                frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  no other way to see a thread
                found = self._found(frames.get(thread), now - last)
                if found is not None and beaten[0] == last:
                    told = last
                    self._heard(found)

        beat()
        threading.Thread(target=look, name="watchdog", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _found(self, frame: FrameType | None, for_s: float) -> Block | None:
        """A tool, with the innermost line of its file; else the innermost function of ours, if it doesn't wait."""
        lines: dict[str, int] = {}
        ours: FrameType | None = None
        for one in _outwards(frame):
            code, module = one.f_code, str(one.f_globals.get("__name__", ""))
            if module == _LOOP:
                break
            lines.setdefault(code.co_filename, one.f_lineno)
            if code in self._tools:
                return Block(self._tools[code], _named(one), f"{code.co_filename}:{lines[code.co_filename]}", for_s)
            if ours is None and module.startswith(_OURS):
                ours = one
        return None if ours is None else Block(None, _named(ours), f"{ours.f_code.co_filename}:{ours.f_lineno}", for_s)


def reported(metrics: Metrics) -> Callable[[Block], None]:
    """A line in the log, for who wrote it, and a count."""

    def report(block: Block) -> None:
        metrics.count(Metric.BLOCKED, by=block.tool or block.function)
        said = {"at": block.at, "for_s": round(block.for_s, 1)}
        if block.tool is not None:
            do = "write it as a plain def, or await what it waits for"
            _log.error(f"a tool blocks the event loop, and every call beside it: {do}", tool=block.tool, **said)
        else:
            _log.error("the event loop is held up", function=block.function, **said)

    return report


def _named(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_name}"


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
