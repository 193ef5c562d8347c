"""What comes into topics of a real log, for a test that waits for it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from aetheris.protocol.base.records import Record
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.log.interface import LogUnreachable, Place

DEADLINE_S = 60.0


class Watcher:
    """Hands every record of its topics on, in the order of each partition, and wakes who waits for one."""

    def __init__(self, log: KafkaLog, topics: Sequence[str], take: Callable[[Record], None]) -> None:
        self._log = log
        self._topics = [str(topic) for topic in topics]
        self._take = take
        self._arrived = asyncio.Condition()

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """From the beginning of the log, for as long as the block lasts."""
        places = [(topic, number) for topic in self._topics for number in range(await self._log.partitions(topic))]
        following = await self._log.beginning_offsets(places)
        watcher = asyncio.create_task(self._watch(following))
        try:
            yield
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)

    async def until(self, holds: Callable[[], Any]) -> None:
        """Return once it holds, which only a record can bring about.

        Raises:
            TimeoutError: none does.
        """
        async with asyncio.timeout(DEADLINE_S), self._arrived:
            await self._arrived.wait_for(lambda: bool(holds()))

    async def _watch(self, following: dict[Place, int]) -> None:
        while True:  # a broker that stands breaks a reader
            with suppress(LogUnreachable):
                await self._read(following)

    async def _read(self, following: dict[Place, int]) -> None:
        """From there on; `following` keeps up."""
        reader = self._log.reader()
        await reader.start()
        try:
            reader.assign(following)
            while True:
                for place, records in (await reader.poll(1.0)).items():
                    for record in records:
                        self._take(record)
                    following[place] = await reader.position(place)
                async with self._arrived:
                    self._arrived.notify_all()
        finally:
            await reader.stop()
