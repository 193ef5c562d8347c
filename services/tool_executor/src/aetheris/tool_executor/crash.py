"""Places to die at, for the demo and the chaos tests; without AETHERIS_CRASH_AT they cost one comparison.

AETHERIS_CRASH_AT=after_call, or after_call:refund for one tool; once for each data folder.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

Point = Literal[
    "before_started", "after_started", "before_call", "in_call", "after_call", "after_put_effect", "after_append"
]
VARIABLE = "AETHERIS_CRASH_AT"
IN_CALL_S = 0.05
"""How long after the beginning of a call `in_call` strikes."""


class NoSuchCrashPoint(ValueError):
    """AETHERIS_CRASH_AT names no point."""


@dataclass(frozen=True, slots=True)
class CrashPoints:
    """Where this process is to kill itself, if anywhere; `marker` is a file that says that it did."""

    point: str | None = None
    tool: str | None = None
    marker: Path | None = None

    def reach(self, point: Point, tool: str) -> None:
        """Die here, if here is where to."""
        if self.point is None:
            return
        if self.point == point and self.tool in (None, tool) and self._first():
            os.kill(os.getpid(), signal.SIGKILL)

    def during(self, tool: str) -> Callable[[], None]:
        """Arm `in_call`; what is returned says that the call has ended."""
        if self.point != "in_call":
            return _nothing
        timer = asyncio.get_running_loop().call_later(IN_CALL_S, self.reach, "in_call", tool)

        def ended() -> None:
            timer.cancel()
            self.reach("in_call", tool)

        return ended

    def _first(self) -> bool:
        if self.marker is None:
            return True
        try:
            self.marker.parent.mkdir(parents=True, exist_ok=True)
            self.marker.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def crash_points(environment: Mapping[str, str], data: Path) -> CrashPoints:
    """Read once, at start.

    Raises:
        NoSuchCrashPoint: the variable names none of the points.
    """
    wanted = environment.get(VARIABLE, "")
    if not wanted:
        return CrashPoints()
    point, _, tool = wanted.partition(":")
    if point not in get_args(Point):
        raise NoSuchCrashPoint(f"{VARIABLE}: {point} is none of {', '.join(get_args(Point))}")
    return CrashPoints(point, tool or None, data / "crashed" / f"{point}.{tool or 'any'}")


def _nothing() -> None:
    return
