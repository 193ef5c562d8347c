"""How old the records of a topic are, by place: what is older than a day is held by no offset."""

from collections import deque

_STEP_MS = 600_000
HELD_MS = 24 * 3600 * 1000
"""For so long a command that is made again keeps its topic's offset; retention deletes after a week."""


class Ages:
    """The times of a place's records as they come, every ten minutes of them."""

    def __init__(self) -> None:
        self._known: deque[tuple[int, int]] = deque()

    def note(self, offset: int, timestamp_ms: int) -> None:
        """A record lies there."""
        if not self._known or timestamp_ms - self._known[-1][0] >= _STEP_MS:
            self._known.append((timestamp_ms, offset))

    def held_from(self, now_ms: float) -> int:
        """The first offset that may be younger than a day, as far as records have come; 0 if all may be."""
        old_ms = now_ms - HELD_MS
        while len(self._known) > 1 and self._known[1][0] <= old_ms:
            self._known.popleft()
        return self._known[0][1] if self._known and self._known[0][0] <= old_ms else 0
