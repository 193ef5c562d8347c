"""How many grants are at work at once, over all partitions of the process; the others wait in their order."""

from collections.abc import Callable

Wake = Callable[[], None]


class Slots:
    """A counted permit, whose waiters are called when one is free."""

    def __init__(self, limit: int) -> None:
        self._limit = self._free = limit
        self._waiting: dict[Wake, None] = {}

    @property
    def taken(self) -> int:
        """Permits that are out."""
        return self._limit - self._free

    def take(self, wake: Wake) -> bool:
        """Take a permit; where there is none, `wake` is called when one may be free."""
        if self._free == 0:
            self._waiting[wake] = None
            return False
        self._free -= 1
        return True

    def release(self) -> None:
        """Give one back."""
        self._free += 1
        while self._free and self._waiting:
            wake = next(iter(self._waiting))
            del self._waiting[wake]
            wake()
