"""Which jobs have ended, seen by a consumer of jobs.index that is no part of the system."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.rigs.bench.measurement import JobNotCompleted
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.log.interface import Reader

_ENDS = ("completed", "failed", "cancelled")
_POLL_S = 0.5


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
        if ended != "completed":
            raise JobNotCompleted(f"{job_id}: {ended}")

    def take(self, record: Record) -> None:
        """Look at a line of the index."""
        status = json.loads(record.value)["status"] if record.value else None
        if status not in _ENDS or record.key is None:
            return
        waiting = self._of(record.key.decode())
        if not waiting.done():
            waiting.set_result(status)

    def _of(self, job_id: str) -> asyncio.Future[str]:
        return self._ends.setdefault(job_id, asyncio.get_running_loop().create_future())


@asynccontextmanager
async def completions(bootstrap: str) -> AsyncGenerator[Completions]:
    """Read jobs.index from its present end on, for as long as the block lasts."""
    log = KafkaLog(bootstrap)
    await log.start()
    reader = log.reader()
    await reader.start()
    try:
        places = [(Topic.JOBS_INDEX, number) for number in range(await log.partitions(Topic.JOBS_INDEX))]
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
