"""One call, in a process that is made for it and ends with it."""

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from aetheris.sdk.context import ProbeContext, ToolContext
from aetheris.sdk.invoke import Raised, ask_probe, invoke, verify
from aetheris.sdk.isolation import kernel
from aetheris.sdk.isolation.frames import LARGEST_OUTPUT, BadFrame, packed, receive
from aetheris.sdk.isolation.said import as_json
from aetheris.sdk.loader import Toolbox
from aetheris.sdk.outcomes import Answer, Outcome, StateChange, Unknown, Verdict
from aetheris.sdk.redaction import Redactor
from aetheris.sdk.tool_output import ToolOutput
from aetheris.sdk.tools import AnyTool

MOST_OUTPUT = 4 * 1024 * 1024
"""Bytes of what a call prints and logs that are handed over; what comes behind is dropped."""
LAST_LINE = 1024
"""Bytes on top of them, in which a call says that more is left out."""
_A_LINE = 100
_LONGEST_LINE = 16 * 1024
_LONGEST_TRACEBACK = 24 * 1024

Role = Literal["tool", "probe", "verifier"]


@dataclass(frozen=True, slots=True)
class Request:
    """What a call's process is given, and all that it is given of its executor."""

    role: Role
    tool: str
    """name@version."""
    context: dict[str, Any]
    """The context's fields, but for the deadline."""
    remaining_s: float | None
    args: dict[str, Any] = field(default_factory=dict[str, Any])
    change: dict[str, Any] = field(default_factory=dict[str, Any])
    secrets: dict[str, str] = field(default_factory=dict[str, str])
    """name@version → the value, of those that this call's arguments hold: to be taken out of what it says."""


_REQUEST = TypeAdapter(Request)


def room_of(size: int) -> int:
    """How much of `MOST_OUTPUT` a line's frame of so many bytes takes: each costs who reads it something."""
    return max(size, _A_LINE)


class _Output:
    """Hands over what the call says, up to a bound; threads print, too."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._turn = threading.Lock()
        self._left = MOST_OUTPUT

    def report(self, level: int, event: str, fields: Mapping[str, Any]) -> None:
        kept = {name: value for name, value in fields.items() if name in ("stream", "line", "logger", "traceback")}
        with self._turn:
            if self._left <= 0:
                return
            frame = packed({"output": {"level": level, "what": event.rpartition(" ")[2], "fields": kept}})
            self._left -= room_of(len(frame))
            if self._left <= 0 or len(frame) > LARGEST_OUTPUT:
                what = "said more, which is left out"
                frame = packed({"output": {"level": level, "what": what, "fields": {}}})
            self._send(frame)

    def end(self, said: dict[str, Any], traceback: str) -> None:
        """The last word."""
        with self._turn:
            self._send(packed({"said": said, "traceback": traceback}))

    def _send(self, frame: bytes) -> None:
        with suppress(OSError):  # nobody listens any more
            self._connection.sendall(frame)


def serve(connection: socket.socket, toolbox: Toolbox, host: int) -> None:
    """Make the one call that is asked for, and say what it came to. The process ends when this returns."""
    os.setsid()
    kernel.end_with(host)
    kernel.adopt_orphans()
    kernel.signals_stay_within()
    os.close(signal.set_wakeup_fd(-1))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection.setblocking(True)
    with suppress(BadFrame, ValidationError, OSError):
        asked = receive(connection)
        if asked is not None:
            _answer(connection, toolbox, _REQUEST.validate_python(asked))


def _answer(connection: socket.socket, toolbox: Toolbox, request: Request) -> None:
    output, tracebacks = _Output(connection), list[str]()
    redactor = Redactor(request.secrets)
    said = ToolOutput(output.report, lambda: redactor, longest_line=_LONGEST_LINE, longest_traceback=_LONGEST_TRACEBACK)
    tool = toolbox.get(*request.tool.rsplit("@", 1))

    def raised(error: BaseException) -> None:
        tracebacks.append(said.shown(error))

    async def answered() -> dict[str, Any]:
        ctx = _context(request)
        with said.of(tool, ctx, request.role):
            return as_json(await _came(tool, request, ctx, redactor, raised))

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    logging.raiseExceptions = False
    with said.installed(toolbox):
        came = loop.run_until_complete(answered())
    output.end(came, "".join(tracebacks[-1:]))


async def _came(
    tool: AnyTool, request: Request, ctx: ToolContext | ProbeContext, redactor: Redactor, raised: Raised
) -> Outcome | Answer | Verdict:
    if isinstance(ctx, ToolContext):
        return await invoke(tool, request.args, ctx, redactor, raised)
    within_s = ctx.remaining()
    if request.role == "probe":
        return await ask_probe(tool, ctx, within_s, raised)
    try:
        change = StateChange(**request.change)
    except TypeError:
        return Unknown("the recorded change can't be read")
    return await verify(tool, change, ctx, within_s, raised)


def _context(request: Request) -> ToolContext | ProbeContext:
    given = dict(request.context)
    if request.remaining_s is not None:
        given["deadline"] = time.monotonic() + request.remaining_s
    return ToolContext(**given) if request.role == "tool" else ProbeContext(**given)
