"""Places to die at, for the demo and the chaos tests; without AETHERIS_CRASH_AT they cost one comparison.

AETHERIS_CRASH_AT=after_call, or after_call:refund for one tool; once for each data folder. With
AETHERIS_CRASH_AT=ordered the place stands in the file `crash-at` of the data folder, in the same words, whenever
somebody writes it there; whoever dies by it removes it first. The service dies that gets to the place.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

ExecutorPoint = Literal[
    "before_started",
    "after_started",
    "before_call",
    "in_call",
    "after_call",
    "after_compensation",
    "after_put_effect",
    "after_append",
    "between_nodes",
]
"""In a call; `after_started`: it is in the log, and its acknowledgement has not been heard; `before_call`: it has;
`after_compensation`: after the call of one that undoes; `between_nodes` of a run: the end of one and the start of the
next lie in the log."""

PlannerPoint = Literal["after_wait", "before_plan", "before_compensated", "before_told"]
"""A wait is over and nothing has followed; a later revision is decided, or a compensation
done, and not recorded; another job is to be told what stands in a log (`before_told:job_ended`)."""

LedgerPoint = Literal["after_approval"]
"""An approval is recorded, and nothing granted."""

Point = Literal[ExecutorPoint, PlannerPoint, LedgerPoint]
VARIABLE = "AETHERIS_CRASH_AT"
ORDERED = "ordered"
ORDERS = "crash-at"
"""The file, in the data folder."""

IN_CALL_S = 0.05
"""How long after the beginning of a call `in_call` strikes; if ordered, also how often it is looked for."""


class NoSuchCrashPoint(ValueError):
    """AETHERIS_CRASH_AT names no point."""


@dataclass(frozen=True, slots=True)
class CrashPoints:
    """Where this process is to kill itself, if anywhere.

    `marker` is a file that says that it did, `orders` one that says where to.
    """

    point: str | None = None
    tool: str | None = None
    marker: Path | None = None
    orders: Path | None = None

    @property
    def armed(self) -> bool:
        """Whether there is any place to die at."""
        return self.point is not None

    def reach(self, point: Point, tool: str = "") -> None:
        """Die here, if here is where to."""
        if self.point is None:
            return
        if self._is_ordered(point, tool) if self.orders is not None else self._is_meant(point, tool):
            os.kill(os.getpid(), signal.SIGKILL)

    async def unobserved(self, tool: str) -> None:
        """Before the acknowledgement of a `started` is heard: never, where its reader is to die of `after_started`."""
        if self._names("after_started", tool):
            await asyncio.get_running_loop().create_future()

    def during(self, tool: str) -> Callable[[], None]:
        """Arm `in_call`; what is returned says that the call has ended."""
        if self.point not in ("in_call", ORDERED):
            return _nothing
        loop = asyncio.get_running_loop()

        def strike() -> None:
            nonlocal timer
            self.reach("in_call", tool)
            timer = loop.call_later(IN_CALL_S, strike)

        def ended() -> None:
            timer.cancel()
            self.reach("in_call", tool)

        timer = loop.call_later(IN_CALL_S, strike)
        return ended

    def _is_meant(self, point: Point, tool: str) -> bool:
        return self._names(point, tool) and self._first()

    def _is_ordered(self, point: Point, tool: str) -> bool:
        if self.orders is None or not self._names(point, tool):
            return False
        self.orders.unlink(missing_ok=True)
        return True

    def _names(self, point: Point, tool: str) -> bool:
        """Whether that is the place, or ordered now."""
        if self.orders is None:
            return self.point == point and self.tool in (None, tool) and not self._struck()
        try:
            return self.orders.read_text() in (point, f"{point}:{tool}")
        except FileNotFoundError:
            return False

    def _struck(self) -> bool:
        return self.marker is not None and self.marker.exists()

    def _first(self) -> bool:
        if self.marker is None:
            return True
        try:
            self.marker.parent.mkdir(parents=True, exist_ok=True)
            self.marker.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


NOWHERE = CrashPoints()


def crash_points(environment: Mapping[str, str], data: Path) -> CrashPoints:
    """Read once, at start.

    Raises:
        NoSuchCrashPoint: the variable names none of the points.
    """
    wanted = environment.get(VARIABLE, "")
    if not wanted:
        return NOWHERE
    if wanted == ORDERED:
        return CrashPoints(ORDERED, orders=data / ORDERS)
    point, _, tool = wanted.partition(":")
    if point not in get_args(Point):
        raise NoSuchCrashPoint(f"{VARIABLE}: {point} is none of {', '.join(get_args(Point))}")
    return CrashPoints(point, tool or None, data / "crashed" / f"{point}.{tool or 'any'}")


def _nothing() -> None:
    return
