"""What goes wrong in a test: each fault strikes one tool, so many times, and a test in which it never does fails."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from aetheris.sdk.tools import Tool

Named = str | Tool[..., Any]
"""A tool, or its name."""


class FaultMoment(Enum):
    """When a fault strikes."""

    BEFORE_CALL = "the executor dies before the call"
    AFTER_CALL = "the executor dies after the call took effect, and told nobody"
    ANSWER = "the answer is lost"
    DELIVERY = "every message arrives twice"


class FaultNotMet(AssertionError):
    """The job ended, and a fault never struck: the test would prove nothing."""


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """One thing that goes wrong; made by the functions of this module."""

    moment: FaultMoment
    tool: str = ""
    times: int = 1


def crash_before(tool: Named, *, times: int = 1) -> InjectedFault:
    """The executor is killed when the log has the call, and before it is made."""
    return InjectedFault(FaultMoment.BEFORE_CALL, _name(tool), times)


def crash_after(tool: Named, *, times: int = 1) -> InjectedFault:
    """The executor is killed when the tool has returned, and before anybody knows: the effect is there."""
    return InjectedFault(FaultMoment.AFTER_CALL, _name(tool), times)


def lost_answer(tool: Named, *, times: int = 1) -> InjectedFault:
    """The call takes effect, and its connection breaks before the answer: the tool raises ConnectionResetError."""
    return InjectedFault(FaultMoment.ANSWER, _name(tool), times)


def duplicate_delivery() -> InjectedFault:
    """Every record lies in the log twice, and every grant reaches two executors, from the job's submission on."""
    return InjectedFault(FaultMoment.DELIVERY)


@dataclass(slots=True)
class Armed:
    """The faults that may still strike."""

    left: dict[InjectedFault, int] = field(default_factory=dict[InjectedFault, int])
    duplicates: bool = False

    def arm(self, faults: Iterable[InjectedFault]) -> None:
        """These may strike from now on."""
        for one in faults:
            if one.moment is FaultMoment.DELIVERY:
                self.duplicates = True
            else:
                self.left[one] = self.left.get(one, 0) + one.times

    def strikes(self, moment: FaultMoment, tool: str) -> bool:
        """Whether one strikes this call now; then it has."""
        armed = (one for one, times in self.left.items() if times)
        found = next((one for one in armed if (one.moment, one.tool) == (moment, tool)), None)
        if found is not None:
            self.left[found] -= 1
        return found is not None

    def check_met(self) -> None:
        """Forget what has struck.

        Raises:
            FaultNotMet: one has not, or not as often as was wanted.
        """
        unmet = [f"{one.moment.value}: {one.tool}, {times} more" for one, times in self.left.items() if times]
        self.left.clear()
        if unmet:
            raise FaultNotMet("; ".join(unmet))


def _name(tool: Named) -> str:
    return tool if isinstance(tool, str) else tool.name
