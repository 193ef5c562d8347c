"""A clock that only moves when it is told to."""

import asyncio
import heapq
from datetime import UTC, datetime, timedelta


class VirtualClock:
    """Starts at `start`; `advance` wakes whoever's time has come, in order."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = 0

    def monotonic(self) -> float:
        """Seconds since the start."""
        return self._elapsed_s

    def now(self) -> datetime:
        """The virtual time of day."""
        return self._start + timedelta(seconds=self._elapsed_s)

    async def sleep(self, delay_s: float) -> None:
        """Return when the clock was advanced by `delay_s`."""
        if delay_s <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._order += 1
        heapq.heappush(self._sleepers, (self._elapsed_s + delay_s, self._order, woken))
        await woken

    async def advance(self, by_s: float) -> None:
        """Move on; sleepers wake in the order of their times, each before the next."""
        until = self._elapsed_s + by_s
        while self._sleepers and self._sleepers[0][0] <= until:
            due_s, _, woken = heapq.heappop(self._sleepers)
            self._elapsed_s = max(self._elapsed_s, due_s)
            if not woken.done():
                woken.set_result(None)
            await asyncio.sleep(0)
        self._elapsed_s = until
        await asyncio.sleep(0)
