"""A service's process: uvloop, structured logs, signals, and an end that is either graceful or a crash."""

import asyncio
import gc
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TextIO, TypeVar, cast

import structlog
import uvloop
from pydantic_settings import BaseSettings

from aetheris.runtime.base.refusal import AGAIN_STATUS, REFUSAL, REFUSED_STATUS, StartRefused, refusal
from aetheris.runtime.process.settings import load

S = TypeVar("S", bound=BaseSettings)

Main = Callable[[asyncio.Event], Awaitable[None]]
"""A service: runs until the event is set; raises to crash."""


class Stopped(Exception):
    """Asked to stop before it had started: a graceful end."""


_CRASHED = 70
_OVERDUE = 71
_YOUNG = 15_000
"""A look at 50,000 young objects held the loop for 25 to 66 ms; one at 15,000 stays below 20."""
_OLDER = (33, 10)


def run(main: Main, *, service: str, stop_deadline_s: float = 15.0) -> int:
    """Run a service until SIGTERM or SIGINT, or until it raises; returns the exit status.

    Crash-only: whatever escapes ends the process, and the next one restores from the log.
    """
    configure_logging(service)
    gc.freeze()  # what was imported; see `lean`
    gc.enable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_supervise(main, stop_deadline_s))


def settings_for(kind: type[S], *, service: str) -> S:
    """The settings of this environment, for who needs them before `run`; ends the process where they are invalid."""
    configure_logging(service)
    try:
        return load(kind)
    except StartRefused as refused:
        _log_refusal(refused)
        sys.exit(REFUSED_STATUS)


def freeze_memory(*, only_facts: bool = False) -> None:
    """Call once everything is loaded: the collector then leaves what lives for ever alone, and looks more rarely.

    A batch of records makes thousands of objects that all live, and few of the rest form cycles: with Python's own
    thresholds the collector took up to a quarter of the planner's CPU. Where `only_facts` come to live, hardly anything
    of tools and clients, it is off, and looks when a `Collector` has it look.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, *_OLDER)
    if only_facts:
        gc.disable()


def configure_logging(service: str) -> None:
    """JSON lines on stderr; event names and fields, never payloads."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _named(service),
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(file=cast("TextIO", _BestEffort(sys.stderr))),
        cache_logger_on_first_use=True,
    )


class _BestEffort:
    """A file whose disk may be full: a line that can't be written ends nothing."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        with suppress(OSError):
            return self._file.write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


def log_crash(error: BaseException) -> None:
    """An error's classes and places, without its text: that may hold a payload."""
    structlog.get_logger(__name__).error(
        "crashed", errors=_classes(error), at=[f"{f.filename}:{f.lineno}" for f in _frames(error)][-12:]
    )


async def _supervise(main: Main, stop_deadline_s: float) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    running = asyncio.ensure_future(_started(main, stop))
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    await asyncio.wait({running}, timeout=stop_deadline_s)
    if not running.done():
        structlog.get_logger(__name__).error("did not stop in time", deadline_s=stop_deadline_s, at=_waiting())
        running.cancel()
        return _OVERDUE
    return _status(running)


async def _started(main: Main, stop: asyncio.Event) -> None:
    """So that what is raised before the first await is an end like any other."""
    await main(stop)


def _status(ended: "asyncio.Future[None]") -> int:
    error = None if ended.cancelled() else ended.exception()
    if error is None or isinstance(error, Stopped):
        return 0
    refused = refusal(error)
    if refused is not None:
        _log_refusal(refused)
        return AGAIN_STATUS if refused.passes else REFUSED_STATUS
    log_crash(error)
    return _CRASHED


def _log_refusal(refused: StartRefused) -> None:
    structlog.get_logger(__name__).error(REFUSAL, code=refused.code, reason=str(refused))


def _classes(error: BaseException) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return [name for inner in error.exceptions for name in _classes(inner)]
    return [type(error).__name__]


def _waiting() -> list[str]:
    """Where each task waits, the innermost place of ours."""
    stacks = [task.get_stack(limit=1) for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    return [f"{frame.f_code.co_filename}:{frame.f_lineno}" for stack in stacks for frame in stack]


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    inner = error
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return list(traceback.extract_tb(inner.__traceback__))


def _named(service: str) -> structlog.typing.Processor:
    def add(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event["service"] = service
        return event

    return add
