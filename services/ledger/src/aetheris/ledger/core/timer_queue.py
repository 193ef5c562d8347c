"""When to look at what: due times in a heap; what was put off or is over is left out when its time comes."""

import heapq
from collections.abc import Callable
from typing import Literal, NamedTuple


class Item(NamedTuple):
    """A requested node, a key, or a request to a human, of a job; the last two are named by key."""

    what: Literal["node", "key", "request"]
    job_id: str
    name: str


DueOf = Callable[[Item], float | None]
"""When the item is due by now; None if it is over."""


class TimerQueue:
    """Times are seconds of the monotonic clock."""

    def __init__(self, due_of: DueOf) -> None:
        self._due_of = due_of
        self._heap: list[tuple[float, int, Item]] = []
        self._count = 0

    def put(self, due_s: float, item: Item) -> None:
        """Remember the item for `due_s`; an earlier entry of it counts only if it is still its due time."""
        self._count += 1
        heapq.heappush(self._heap, (due_s, self._count, item))

    def take(self, now_s: float) -> list[Item]:
        """What is due, each item once."""
        due: dict[Item, None] = {}
        while self._heap and self._heap[0][0] <= now_s:
            at_s, _, item = heapq.heappop(self._heap)
            if self._due_of(item) == at_s:
                due[item] = None
        return list(due)

    def next_due(self) -> float | None:
        """The earliest time at which something is due."""
        while self._heap and self._due_of(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
