"""Requests that stay open: event streams, waits. Bounded in all and per caller, so that nobody holds them all."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import TooMany


class Holds:
    """How many are open, and whose."""

    def __init__(self, most: int, most_of_a_caller: int) -> None:
        self._most = most
        self._most_of_a_caller = most_of_a_caller
        self._open: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def held(self, caller: Principal) -> Generator[None]:
        """Around one of them.

        Raises:
            TooMany: so many are open.
        """
        whose = (caller.tenant, caller.id)
        if self._open[whose] >= self._most_of_a_caller:
            raise TooMany("streams_per_caller", f"{self._most_of_a_caller} streams and waits of yours are open")
        if self._open.total() >= self._most:
            raise TooMany("streams", "as many streams and waits are open as the gateway holds: try again")
        self._open[whose] += 1
        try:
            yield
        finally:
            self._open[whose] -= 1
            if not self._open[whose]:
                del self._open[whose]
