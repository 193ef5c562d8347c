"""Names a tool that blocks the event loop: an `async def` that computes, or waits without `await` (docs/tools.md)."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

import structlog

from aetheris.sdk.remains import know
from aetheris.sdk.tools import AnyTool

BLOCKED_AFTER_S = 1.0
_BEAT_S = 0.25

_log = structlog.get_logger(__name__)

Blocked = Callable[[str, str, float], None]
"""Hears which tool, in which line, holds up the loop, and for how many seconds it has by now."""


def say(tool: str, at: str, for_s: float) -> None:
    """A line in the log, for the author of the tool."""
    why = "a tool blocks the event loop, and every call beside it: write it as a plain def, or await what it waits for"
    _log.error(why, tool=tool, at=at, for_s=round(for_s, 1))


@contextmanager
def watching(tools: Iterable[AnyTool], blocked: Blocked = say, after_s: float = BLOCKED_AFTER_S) -> Generator[None]:
    """Look at the running loop from a thread of its own, for as long as this lasts; each block is told once."""
    codes = {code: tool.key for tool in tools if (code := _code_of(tool)) is not None}
    loop, thread, over = asyncio.get_running_loop(), threading.get_ident(), threading.Event()
    beaten = [time.monotonic()]

    def beat() -> None:
        beaten[0] = time.monotonic()
        if not over.is_set():
            loop.call_later(_BEAT_S, beat)

    def look() -> None:
        reported = 0.0
        while not over.wait(after_s / 2):
            last, now = beaten[0], time.monotonic()
            if now - last < after_s or last == reported:
                continue
            frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  the only way to see another thread's
            found = _tool_in(frames.get(thread), codes)
            if found is not None and beaten[0] == last:
                reported = last
                blocked(*found, now - last)

    beat()
    watcher = threading.Thread(target=look, name="watchdog", daemon=True)
    know(watcher)  # it is the engine's own: of no call does it say that something lives on
    watcher.start()
    try:
        yield
    finally:
        over.set()


def _code_of(tool: AnyTool) -> CodeType | None:
    code = getattr(tool.function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _tool_in(frame: FrameType | None, codes: dict[CodeType, str]) -> tuple[str, str] | None:
    """The tool whose code a thread is in, and the innermost line of the file that the tool stands in."""
    lines: dict[str, int] = {}
    for one in _outwards(frame):
        lines.setdefault(one.f_code.co_filename, one.f_lineno)
        if one.f_code in codes:
            file = one.f_code.co_filename
            return codes[one.f_code], f"{file}:{lines[file]}"
    return None


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
