"""A job's events as they come, over as many connections as it takes."""

from collections.abc import Iterator
from typing import Any

import httpx

from aetheris.protocol.api import JobEvent
from aetheris.sdk.client.calls import TIMEOUT_S
from aetheris.sdk.client.errors import Unreachable, unreachable

ENDS = frozenset({"job_completed", "job_failed", "job_cancelled"})
"""The events that end a job; what may follow them is its seal."""
PAUSE_S = 0.5
"""Between two connections."""
EARLY_END = Unreachable("stream_ended", "the gateway ends the event stream before the job ends")

_SILENCE_S = 60.0
"""The gateway sends at least a comment every 15 s: a stream silent for longer is broken."""
_ALIVE = b": alive"
_MOVE = b"execution_state"
"""A contract's move, told before the event that it follows from; `contracts` has them all."""


class EventWalk:
    """One walk along a job's events, over as many connections as it takes."""

    def __init__(self, after: int, to_seal: bool, patience_s: float, now_s: float) -> None:
        self._last = after
        self._end = frozenset({"job_sealed"}) if to_seal else ENDS | {"job_sealed"}
        self._patience_s = patience_s
        self._heard_s = now_s
        self._unended: list[bytes] = []
        """The parts of a line whose end has not come."""
        self._data: list[bytes] = []
        self._moves = False
        self.over = False

    def arguments(self) -> dict[str, Any]:
        """Of the request that goes on from the last event seen."""
        self._unended.clear()
        self._data.clear()
        self._moves = False
        headers = {"accept": "text/event-stream", "last-event-id": str(self._last)}
        return {"headers": headers, "timeout": httpx.Timeout(TIMEOUT_S, read=_SILENCE_S)}

    def take(self, part: bytes, now_s: float) -> Iterator[JobEvent]:
        """A part of the stream, cut anywhere; the events that it completes, none after the one that ends the walk."""
        ended, line_end, rest = part.rpartition(b"\n")
        if line_end:
            lines = b"".join((*self._unended, ended)).split(b"\n")
            self._unended = [rest]
        else:
            lines = []
            self._unended.append(rest)
        for line in lines:
            event = self._line(line.removesuffix(b"\r"), now_s)
            if event is not None:
                yield event
                if self.over:
                    return

    def _line(self, line: bytes, now_s: float) -> JobEvent | None:
        """One line; an event where it completes one (id and name are repeated in its data)."""
        if line.startswith(b"data:"):
            self._heard_s = now_s
            self._data.append(line[5:].removeprefix(b" "))
        elif line.startswith(b"event:"):
            self._moves = line[6:].strip() == _MOVE
        elif line == _ALIVE:
            self._heard_s = now_s
        elif not line and self._data:
            return self._event()
        return None

    def _event(self) -> JobEvent | None:
        text, moves = b"\n".join(self._data), self._moves
        self._data.clear()
        self._moves = False
        event = None if moves else JobEvent.model_validate_json(text)
        if event is None or event.seq <= self._last:
            return None
        self._last = event.seq
        self.over = event.type in self._end
        return event

    def broke(self, error: Exception, now_s: float) -> None:
        """A connection ended too soon: go on, as long as patience lasts."""
        if now_s - self._heard_s > self._patience_s:
            raise error if isinstance(error, Unreachable) else unreachable(error)
