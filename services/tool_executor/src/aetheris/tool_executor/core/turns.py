"""Whose grant is next: tenants by deficit round robin, and of a tenant each job in turn; pure."""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from aetheris.tool_executor.core.grants import ReceivedGrant

_QUANTUM = 8
"""Nodes that a tenant may have taken up in each round of the tenants that wait."""
_LONGEST = 4 * _QUANTUM
"""Runs of more nodes count as so many, so that finding the next one takes few rounds."""


@dataclass(slots=True)
class _Line:
    """A tenant's grants that wait: each of its jobs gets a turn, in their order, before any gets another."""

    deficit: int = 0
    """Nodes that it may have taken up before the next tenant comes."""
    turn: int = 0
    turns: dict[str, int] = field(default_factory=dict)
    due: list[tuple[int, int, ReceivedGrant]] = field(default_factory=list)

    def put(self, taken: ReceivedGrant) -> None:
        turn = max(self.turn, self.turns.get(taken.grant.job_id, 0)) + 1
        self.turns[taken.grant.job_id] = turn
        heapq.heappush(self.due, (turn, taken.offset, taken))

    def cost(self) -> int:
        return min(len(self.due[0][2].grant.nodes), _LONGEST)

    def pop(self) -> ReceivedGrant:
        self.deficit -= self.cost()
        self.turn, _, taken = heapq.heappop(self.due)
        if self.turns[taken.grant.job_id] == self.turn:
            del self.turns[taken.grant.job_id]
        return taken


class Turns:
    """The grants of one partition that wait for a slot."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, _Line] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __iter__(self) -> Iterator[ReceivedGrant]:
        return (taken for line in self._lines.values() for _, _, taken in line.due)

    def put(self, taken: ReceivedGrant) -> None:
        """It waits behind those of its tenant that came before it."""
        self._lines.setdefault(taken.tenant, _Line()).put(taken)

    def take(self, may_take: Callable[[str], bool]) -> ReceivedGrant | None:
        """The next one of a tenant for which there is room; None where there is for none that waits."""
        passed_over = 0
        while passed_over < len(self._lines):
            tenant, line = next(iter(self._lines.items()))
            if not may_take(tenant):
                passed_over += 1
            elif line.deficit >= line.cost():
                return self._pop(tenant, line)
            else:
                line.deficit += _QUANTUM
                passed_over = 0
            self._lines.move_to_end(tenant)
        return None

    def clear(self) -> None:
        """Nobody waits any more."""
        self._lines.clear()

    def _pop(self, tenant: str, line: _Line) -> ReceivedGrant:
        taken = line.pop()
        if not line.due:
            del self._lines[tenant]
        return taken
