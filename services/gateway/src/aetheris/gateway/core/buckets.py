"""So many at once, and then so many a second: a leaky bucket. Pure: the time comes in.

Own code: the libraries for it read the clock, and their store, within the decision.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Generic, TypeVar


@dataclass(frozen=True, slots=True)
class Limit:
    """So many at once, and then so many a second."""

    burst: float
    per_s: float


@dataclass(slots=True)
class Bucket:
    """What was taken and has not leaked away yet."""

    level: float = 0.0
    at_s: float = 0.0

    def add(self, limit: Limit, now_s: float) -> bool:
        """Whether one more is within the limit."""
        if not self.has_room(limit, now_s):
            return False
        self.level += 1
        return True

    def has_room(self, limit: Limit, now_s: float) -> bool:
        """Whether one more would be."""
        return self.left(limit, now_s) > 0

    def left(self, limit: Limit, now_s: float) -> int:
        """How many more would be."""
        self.level = max(0.0, self.level - (now_s - self.at_s) * limit.per_s)
        self.at_s = now_s
        return max(0, floor(limit.burst - self.level))

    def wait_s(self, limit: Limit) -> int:
        """Whole seconds after which there is room for one more."""
        return max(1, ceil((self.level + 1 - limit.burst) / limit.per_s))


Key = TypeVar("Key")


class Buckets(Generic[Key]):
    """One for each key; the one that was used longest ago makes room."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[Key, Bucket] = OrderedDict()

    def of(self, key: Key) -> Bucket:
        """That of a key."""
        bucket = self._known.pop(key, None) or Bucket()
        self._known[key] = bucket
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return bucket


def full(buckets: Sequence[tuple[Bucket, Limit]], now_s: float) -> int | None:
    """Put one into each of them, or into none: the place of the first that has no room; None where all had."""
    for place, (bucket, limit) in enumerate(buckets):
        if not bucket.has_room(limit, now_s):
            return place
    for bucket, _ in buckets:
        bucket.level += 1
    return None
