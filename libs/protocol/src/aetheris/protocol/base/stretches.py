"""Where in its partition the records of one job lie: stretches of offsets, each from its first up to, without, its end.

Others' records lie in them too. A gap is left out where it is long enough to be worth a read of its own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Stretch = tuple[int, int]

NEAR = 1000
"""Offsets between two records that are read in one go: a fetch brings about as much at once."""
MOST = 100
"""Stretches of a job that are told apart; beyond that the two that lie closest to each other become one."""


@dataclass(slots=True)
class Stretches:
    """Takes the offsets of a job's records, in log order."""

    _found: list[Stretch] = field(default_factory=list[Stretch])

    @classmethod
    def known(cls, stretches: Iterable[Stretch]) -> "Stretches":
        """Those that were told before; what comes next is added to them."""
        return cls(list(stretches))

    def add(self, offset: int) -> bool:
        """Whether a record's offset is news."""
        if not self._found:
            self._found.append((offset, offset + 1))
            return True
        begin, end = self._found[-1]
        if offset < end:
            return False
        if offset - end <= NEAR:
            self._found[-1] = begin, offset + 1
        else:
            self._found.append((offset, offset + 1))
            if len(self._found) > MOST:
                self._join_closest()
        return True

    def told(self) -> tuple[Stretch, ...]:
        """All of them, in log order."""
        return tuple(self._found)

    def _join_closest(self) -> None:
        at = min(range(len(self._found) - 1), key=lambda at: self._found[at + 1][0] - self._found[at][1])
        self._found[at : at + 2] = [(self._found[at][0], self._found[at + 1][1])]


def in_order(begin: int, end: int, stretches: Sequence[Stretch]) -> bool:
    """Whether these lie one behind another, each of some length, from `begin` on and below `end`."""
    at = begin
    for first, behind in stretches:
        if not at <= first < behind <= end:
            return False
        at = behind
    return True
