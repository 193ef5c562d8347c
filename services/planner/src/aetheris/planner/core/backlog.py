"""Submissions that wait in jobs.commands, not in memory, until the jobs in flight have made room; pure."""

from collections import deque
from dataclasses import dataclass, field

JOBS_IN_FLIGHT = 1000


@dataclass(slots=True)
class Backlog:
    """Offsets of submissions that were read and not taken up, oldest first; at most `limit` jobs are in flight."""

    limit: int = JOBS_IN_FLIGHT
    _offsets: deque[int] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def oldest(self) -> int | None:
        """The first offset; None if nothing waits."""
        return self._offsets[0] if self._offsets else None

    def must_wait(self, in_flight: int) -> bool:
        """Whether a submission that comes now waits; nobody overtakes those who wait already."""
        return bool(self._offsets) or in_flight >= self.limit

    def put(self, offset: int) -> None:
        """Leave a submission where it lies."""
        self._offsets.append(offset)

    def take(self, in_flight: int) -> list[int]:
        """Whom there is room for: nobody before half of it is free, since reading again costs a request."""
        if in_flight > self.limit // 2:
            return []
        return [self._offsets.popleft() for _ in range(min(len(self._offsets), self.limit - in_flight))]
