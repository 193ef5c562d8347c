"""The clock, passed in: services never ask the system for the time (the test kit has a virtual one)."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What services may know of time."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def now(self) -> datetime:
        """The time of day, in UTC; informs, decides nothing."""
        ...

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s` seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        return time.monotonic()

    def now(self) -> datetime:
        """The time of day, in UTC."""
        return datetime.now(UTC)

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s` seconds."""
        await asyncio.sleep(delay_s)
