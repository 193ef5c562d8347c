"""What tools, probes and verifiers print, log and raise, as lines of a log: with job and step, without secrets.

A call is known by its context, which tasks and threads that it starts have too. Whatever is written outside of a call
goes where it went before (docs/tools.md, "What a tool says").
"""

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TextIO, cast

from aetheris.sdk import invoke as calling
from aetheris.sdk import threads
from aetheris.sdk.context import ProbeContext, ToolContext
from aetheris.sdk.isolation.errors import RaisedElsewhere
from aetheris.sdk.redaction import NOTHING, Redactor
from aetheris.sdk.tools import AnyTool

LONGEST_LINE = 4_000  # characters
LONGEST_TRACEBACK = 16_000  # characters; its end is what is kept
_RELAYED = ("stream", "line", "logger", "traceback")
_LONGEST_HELD = 64 * 1024
"""Characters of a line that isn't ended; what comes on top of them is dropped, so that no secret is cut in two."""

Say = Callable[[int, str, Mapping[str, Any]], None]
"""Writes a line of the log: its level, what happened, and its fields."""

_CALL: "ContextVar[_Call | None]" = ContextVar("call", default=None)


@dataclass(slots=True)
class _Call:
    """One call of a tool, a probe or a verifier, and the lines that it has begun."""

    role: str
    fields: dict[str, Any]
    silent: bool = False
    """Nothing of it may lie in a log."""
    begun: dict[str, str] = field(default_factory=dict[str, str])
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Heard:
    """A block in which what is said is a call's. One is made for each: a generator's context is dearer."""

    __slots__ = ("_before", "_by", "_call")

    def __init__(self, by: "ToolOutput", call: _Call) -> None:
        self._by, self._call = by, call

    def __enter__(self) -> None:
        self._before = _CALL.set(self._call)

    def __exit__(self, *_: object) -> None:
        _CALL.reset(self._before)
        for stream in tuple(self._call.begun):
            self._by.write(self._call, stream, "\n")


class ToolOutput:
    """Where what tools say goes; `told` is false where nothing of it may lie in a log."""

    def __init__(
        self,
        say: Say,
        redactor: Callable[[], Redactor] = lambda: NOTHING,
        *,
        reported: bool = True,
        longest_line: int = LONGEST_LINE,
        longest_traceback: int = LONGEST_TRACEBACK,
    ) -> None:
        self._sink = say
        self._redactor = redactor
        self._told = reported
        self._longest_line = longest_line
        self._longest_traceback = longest_traceback

    def of(
        self, tool: AnyTool, ctx: ToolContext | ProbeContext, role: str = "tool", *, silent: bool = False
    ) -> "_Heard":
        """While this call is made, what is said in its context is its own; `role` is tool, probe or verifier.

        Args:
            silent: nothing that it says is told, but for the class of what it raises.
        """
        fields: dict[str, Any] = {"tool": tool.key, "job_id": ctx.job_id, "node_id": ctx.node_id}
        if isinstance(ctx, ToolContext):
            fields["attempt"] = ctx.attempt
        return _Heard(self, _Call(role, fields, silent))

    def raised(self, error: BaseException) -> None:
        """What ended a call that may have taken effect: as Python would have shown it, from the tool's own line on."""
        call = _CALL.get()
        if call is not None and self._told:
            told = {} if call.silent else {"traceback": self.shown(error)}
            fields = {**call.fields, "error": _class_of(error), **told}
            self._report(logging.ERROR, f"{call.role} raised", fields)

    def relay(self, level: int, what: str, fields: Mapping[str, str]) -> None:
        """A line that this call has said in a process of its own."""
        call = _CALL.get()
        if call is None or call.silent or not self._told:
            return
        clean = {name: self._line(text) for name, text in fields.items() if name in _RELAYED}
        named = what if what in ("printed", "logged") else "said more, which is left out"
        at = min(max(level // 10 * 10, logging.DEBUG), logging.CRITICAL)
        self._report(at, f"{call.role} {named}", {**call.fields, **clean})

    def write(self, call: _Call, stream: str, text: str) -> None:
        """Keep a line until it has ended, then say it."""
        with call.lock:
            *lines, rest = (call.begun.pop(stream, "") + text).split("\n")
            if rest:
                call.begun[stream] = rest[:_LONGEST_HELD]
        for line in lines:
            if line and self._told and not call.silent:
                fields = {**call.fields, "stream": stream, "line": self._line(line)}
                self._report(logging.INFO, f"{call.role} printed", fields)

    def record(self, call: _Call, record: logging.LogRecord) -> None:
        """A line that was logged with Python's own logging."""
        if not self._told or call.silent:
            return
        fields = {**call.fields, "logger": record.name, "line": self._line(record.getMessage())}
        if record.exc_info is not None and record.exc_info[1] is not None:
            fields["traceback"] = self.shown(record.exc_info[1])
        level = min(max(record.levelno // 10 * 10, logging.DEBUG), logging.CRITICAL)
        self._report(level, f"{call.role} logged", fields)

    @contextmanager
    def installed(self, tools: Iterable[AnyTool] = ()) -> Generator[None]:
        """Hear what is printed and logged; of the tools' own packages from INFO on, of others what they warn of."""
        stdout, stderr = sys.stdout, sys.stderr
        sys.stdout = cast("TextIO", _Stream(self, "stdout", stdout))
        sys.stderr = cast("TextIO", _Stream(self, "stderr", stderr))
        handler = _Handler(self)
        logging.getLogger().addHandler(handler)
        for name in {str(tool.function.__module__).partition(".")[0] for tool in tools}:
            if logging.getLogger(name).level == logging.NOTSET:
                logging.getLogger(name).setLevel(logging.INFO)
        try:
            yield
        finally:
            logging.getLogger().removeHandler(handler)
            sys.stdout, sys.stderr = stdout, stderr

    def _report(self, level: int, event: str, fields: Mapping[str, Any]) -> None:
        """In nobody's name: the log may be written by way of the very streams that are listened to."""
        before = _CALL.set(None)
        try:
            self._sink(level, event, fields)
        finally:
            _CALL.reset(before)

    def _line(self, text: str) -> str:
        return self._redactor().text(text)[: self._longest_line]

    def shown(self, error: BaseException) -> str:
        """What is told of an exception: where it was raised, and its words."""
        if isinstance(error, RaisedElsewhere):
            return self._redactor().text(error.traceback)[-self._longest_traceback :]
        with suppress(Exception):  # an exception's own code may raise anything
            lines = traceback.format_exception(type(error), error, _from_tool(error))
            return self._redactor().text("".join(lines))[-self._longest_traceback :]
        return type(error).__name__


class _Stream:
    """Standard output or error: a call's text becomes lines of the log, any other passes."""

    def __init__(self, output: ToolOutput, name: str, stream: TextIO) -> None:
        self._output = output
        self._name = name
        self._stream = stream

    def write(self, text: str) -> int:
        call = _CALL.get()
        if call is None:
            return self._stream.write(text)
        self._output.write(call, self._name, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _class_of(error: BaseException) -> str:
    return error.error_class if isinstance(error, RaisedElsewhere) else type(error).__name__


class _Handler(logging.Handler):
    """Of a call: lines of the log. Of nobody's call: what Python does where nobody handles a record."""

    def __init__(self, output: ToolOutput) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        call = _CALL.get()
        if call is not None:
            with suppress(Exception):  # a record's arguments may raise anything
                self._output.record(call, record)
        elif logging.lastResort is not None and record.levelno >= logging.lastResort.level:
            logging.lastResort.handle(record)


def _from_tool(error: BaseException) -> Any:
    """The part of a traceback that is not how the tool was called."""
    ours, at = (calling.__file__, threads.__file__), error.__traceback__
    while at is not None and at.tb_next is not None and at.tb_frame.f_code.co_filename in ours:
        at = at.tb_next
    return at
