"""Waiting for what others write into a topic that this gateway follows."""

import asyncio
from collections.abc import Callable
from contextlib import suppress


class Awaited:
    """What is read of a topic, told to those who wait for something there."""

    def __init__(self) -> None:
        self._news = asyncio.Event()

    def changed(self, *_: object) -> None:
        """Something was read; a listener of any table."""
        self._news.set()
        self._news = asyncio.Event()

    async def until(self, is_there: Callable[[], bool], within_s: float) -> bool:
        """Whether it is there, at the latest after `within_s`; what `is_there` raises ends the wait."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not is_there():
                    await self._news.wait()
        return is_there()
