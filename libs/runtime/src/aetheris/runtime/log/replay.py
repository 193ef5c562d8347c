"""Reading a stretch of one partition, up to a known end."""

import asyncio
from collections.abc import AsyncIterator

from aetheris.protocol.base.records import Record
from aetheris.runtime.log.interface import Log, LogUnreachable, Place, Reader

_POLL_S = 0.5
_RETRY_PAUSE_S = 0.2
_STRETCH_WAIT_S = 0.01
_PORTION = 5000


async def replay(log: Log, place: Place, start: int, end: int) -> AsyncIterator[list[Record]]:
    """Records from `start` on, at least up to `end` (what came with the last of them too); waits for brokers.

    Raises:
        LogGap: the log doesn't have `start`.
    """
    position = start
    while position < end:
        reader = log.reader(_STRETCH_WAIT_S)
        try:
            await reader.start()
            reader.assign({place: position})
            async for records in stretch(reader, place, end):
                position = records[-1].offset + 1
                yield records
            return
        except LogUnreachable:
            await asyncio.sleep(_RETRY_PAUSE_S)
        finally:
            await reader.stop()


async def stretch(reader: Reader, place: Place, end: int) -> AsyncIterator[list[Record]]:
    """What an assigned reader still has up to `end`; it may end in what holds no record (compaction).

    Raises:
        LogGap: the log doesn't have the reader's position.
        LogUnreachable: the connection is broken.
    """
    while (position := await reader.position(place)) < end:
        batch = await reader.poll(_POLL_S, min(_PORTION, end - position))
        if place in batch:
            yield batch[place]
