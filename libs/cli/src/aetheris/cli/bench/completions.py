"""Which jobs have ended, seen by a consumer of jobs.events that is no part of the system."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aetheris.protocol.records import Record
from aetheris.protocol.topics import Topic
from aetheris.streams.kafka import KafkaLog
from aetheris.streams.log import Reader

_ENDS = {f"io.aetheris.{name}.v1".encode(): name for name in ("job_completed", "job_failed", "job_cancelled")}
_POLL_S = 0.5


class JobNotCompleted(Exception):
    """A job of the bench ended otherwise: its figures would mean nothing."""


class Completions:
    """Lets each job's submitter wait for its end; an end seen before anybody waits is kept."""

    def __init__(self) -> None:
        self._ends: dict[str, asyncio.Future[str]] = {}

    async def wait(self, job_id: str) -> None:
        """Return once the job has completed.

        Raises:
            JobNotCompleted.
        """
        ended = await self._of(job_id)
        if ended != "job_completed":
            raise JobNotCompleted(f"{job_id}: {ended}")

    def take(self, record: Record) -> None:
        """Look at a record's type; nothing else of it is decoded."""
        ended = _ENDS.get(record.header("ce_type") or b"")
        if ended is None or record.key is None:
            return
        waiting = self._of(record.key.decode())
        if not waiting.done():
            waiting.set_result(ended)

    def _of(self, job_id: str) -> asyncio.Future[str]:
        return self._ends.setdefault(job_id, asyncio.get_running_loop().create_future())


@asynccontextmanager
async def completions(bootstrap: str) -> AsyncGenerator[Completions]:
    """Read jobs.events from its present end on, for as long as the block lasts."""
    log = KafkaLog(bootstrap)
    await log.start()
    reader = log.reader()
    await reader.start()
    try:
        places = [(Topic.JOBS_EVENTS, number) for number in range(await log.partitions(Topic.JOBS_EVENTS))]
        reader.assign(await log.end_offsets(places))
        seen = Completions()
        reading = asyncio.create_task(_read(reader, seen))
        try:
            yield seen
        finally:
            reading.cancel()
            await asyncio.wait({reading})
    finally:
        await reader.stop()
        await log.stop()


async def _read(reader: Reader, seen: Completions) -> None:
    while True:
        for records in (await reader.poll(_POLL_S)).values():
            for record in records:
                seen.take(record)
