"""How many grants are at work at once, over all partitions of the process; the others wait in their order.

A tenant has a share that others can't take from it, on top where they have filled the whole.
"""

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

Wake = Callable[[], None]
Spawn = Callable[[Coroutine[Any, Any, None]], object]

_SHARES = 10
"""A tenant's own share is this part of the whole, whatever others have at work."""


class Slots:
    """Counted permits, whose waiters are called when some are free: those that come back together, together."""

    def __init__(self, limit: int, spawn: Spawn) -> None:
        self._limit = limit
        self._spawn = spawn
        self._counts: Counter[str] = Counter()
        self.taken = 0
        """Permits that are out; at most twice the limit."""
        self._waiting: dict[Wake, None] = {}
        self._waking = False
        self._share_came_back = False

    @property
    def share(self) -> int:
        """So many of a tenant's calls may be at work whatever others have."""
        return max(1, self._limit // _SHARES)

    def may_take(self, tenant: str) -> bool:
        """Whether there is a permit for a call of this tenant."""
        if self.taken < self._limit:
            return True
        return self.taken < 2 * self._limit and self._counts[tenant] < self.share

    def take(self, tenant: str) -> None:
        """A permit that may be taken is out from now on."""
        self.taken += 1
        self._counts[tenant] += 1

    def wait(self, wake: Wake) -> None:
        """Call `wake` once some may be free that were not."""
        self._waiting[wake] = None

    def release(self, tenant: str) -> None:
        """Give one back."""
        self.taken -= 1
        self._counts[tenant] -= 1
        self._share_came_back |= self._counts[tenant] < self.share
        if not self._counts[tenant]:
            del self._counts[tenant]
        if self._waiting and not self._waking:
            self._waking = True
            self._spawn(self._wake())

    async def _wake(self) -> None:
        """When all that have ended in this pass of the loop have given theirs back; each that waits once."""
        everybody, self._waking, self._share_came_back = self._share_came_back, False, False
        for wake in tuple(self._waiting):
            if self.taken >= self._limit and not everybody:
                break
            del self._waiting[wake]
            wake()
