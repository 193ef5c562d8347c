"""How many grants are at work at once, over all partitions of the process; the others wait in their order."""

from collections.abc import Callable, Coroutine
from typing import Any

Wake = Callable[[], None]
Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Slots:
    """A counted permit, whose waiters are called when some are free: those that come back together, together."""

    def __init__(self, limit: int, spawn: Spawn) -> None:
        self._limit = self._free = limit
        self._spawn = spawn
        self._waiting: dict[Wake, None] = {}
        self._waking = False

    @property
    def taken(self) -> int:
        """Permits that are out."""
        return self._limit - self._free

    def take(self, wake: Wake) -> bool:
        """Take a permit; where there is none, `wake` is called when some may be free."""
        if self._free == 0:
            self._waiting[wake] = None
            return False
        self._free -= 1
        return True

    def release(self) -> None:
        """Give one back."""
        self._free += 1
        if self._waiting and not self._waking:
            self._waking = True
            self._spawn(self._wake())

    async def _wake(self) -> None:
        """When all that have ended in this pass of the loop have given theirs back."""
        self._waking = False
        while self._free and self._waiting:
            wake = next(iter(self._waiting))
            del self._waiting[wake]
            wake()
