"""A job's records, read from the authority when somebody asks for them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.log.interface import Log, LogUnreachable, Place, Reader
from aetheris.runtime.log.replay import stretch

_STRETCH_WAIT_S = 0.01
_RETRY_PAUSE_S = 0.1


class JobLogReader:
    """A few readers that stay connected, so that a job is read in milliseconds."""

    def __init__(self, log: Log, topic: Topic = Topic.JOBS_EVENTS, readers: int = 2) -> None:
        self._log = log
        self._topic = topic
        self._free: asyncio.LifoQueue[Reader | None] = asyncio.LifoQueue()
        for _ in range(readers):
            self._free.put_nowait(None)

    async def read_job(
        self, job_id: str, partition: int, start: int, until: int | None = None, deadline_s: float = 10.0
    ) -> list[Record]:
        """The job's records from offset `start` (its birth) up to, without, `until` (None: the end as it is now).

        Raises:
            LogGap: the log doesn't have `start`.
            LogUnreachable: not read within the deadline.
        """
        place = (self._topic, partition)
        try:
            async with asyncio.timeout(deadline_s):
                end = (await self._log.end_offsets([place], deadline_s))[place] if until is None else until
                while True:
                    try:
                        return await self._read(place, job_id.encode(), start, end)
                    except LogUnreachable:
                        await asyncio.sleep(_RETRY_PAUSE_S)
        except TimeoutError:
            raise LogUnreachable(f"{self._topic}[{partition}] was not read within {deadline_s} s") from None

    async def close(self) -> None:
        """Disconnect the readers that are free."""
        while not self._free.empty():
            reader = self._free.get_nowait()
            if reader is not None:
                await reader.stop()

    async def _read(self, place: Place, key: bytes, start: int, end: int) -> list[Record]:
        async with self._borrowed(place) as reader:
            reader.assign({place: start})
            return [
                record
                async for records in stretch(reader, place, end)
                for record in records
                if record.key == key and record.offset < end
            ]

    @asynccontextmanager
    async def _borrowed(self, place: Place) -> AsyncGenerator[Reader]:
        """A connected reader, that rests between two readings; one that failed is not used again."""
        reader = await self._free.get()
        usable = False
        try:
            if reader is None:
                reader = self._log.reader(_STRETCH_WAIT_S)
                await reader.start()
            yield reader
            reader.pause([place])
            usable = True
        finally:
            self._free.put_nowait(reader if usable else None)
            if reader is not None and not usable:
                await reader.stop()
