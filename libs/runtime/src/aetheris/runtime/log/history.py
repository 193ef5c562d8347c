"""A job's records, read from the authority when somebody asks for them; what is gone there, from the archive."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.stretches import Stretch, in_order
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.job_log import holds_what_was_sealed
from aetheris.runtime.log.interface import ArchiveUnusable, Log, LogUnreachable, Place, Reader
from aetheris.runtime.log.replay import stretch

_STRETCH_WAIT_S = 0.01
_RETRY_PAUSE_S = 0.1
_LONG = 500
"""Records whose hashes are computed beside the event loop."""


class Lies(Protocol):
    """What jobs.index says of where a job's records lie."""

    @property
    def birth(self) -> int:
        """The offset of its job_created."""
        ...

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Those up to its first seal; none where it isn't sealed, or the index doesn't say it yet."""
        ...

    @property
    def behind(self) -> tuple[Stretch, ...]:
        """Those behind its first seal."""
        ...


class Archive(Protocol):
    """Where the records of sealed jobs are that are gone from the log."""

    async def records(self, job_id: str, partition: int) -> list[Record]:
        """The job's records, in log order, as they were archived.

        Raises:
            ArchiveUnusable: there is no bundle of it, or none that is good.
        """
        ...


class _NoArchive:
    async def records(self, job_id: str, partition: int) -> list[Record]:  # noqa: ARG002  there are none
        raise ArchiveUnusable("not_archived", f"the log no longer has the beginning of job {job_id}")


class JobLogReader:
    """A few readers that stay connected, so that a job is read in milliseconds."""

    def __init__(
        self, log: Log, topic: Topic = Topic.JOBS_EVENTS, readers: int = 2, *, archive: Archive | None = None
    ) -> None:
        self._log = log
        self._topic = topic
        self._archive = archive or _NoArchive()
        self._free: asyncio.LifoQueue[Reader | None] = asyncio.LifoQueue()
        for _ in range(readers):
            self._free.put_nowait(None)

    async def read_job(
        self, job_id: str, partition: int, start: int, until: int | None = None, deadline_s: float = 10.0
    ) -> list[Record]:
        """The job's records from offset `start` (its birth) up to, without, `until` (None: the end as it is now).

        Raises:
            ArchiveUnusable: the log no longer has `start`, and nor has the archive.
            LogGap: the log doesn't have `start` yet.
            LogUnreachable: not read within the deadline.
        """
        place = (self._topic, partition)
        try:
            async with asyncio.timeout(deadline_s):
                end = (await self._log.end_offsets([place], deadline_s))[place] if until is None else until
                begin = (await self._log.beginning_offsets([place], deadline_s))[place]
                if start >= begin:
                    return await self._read_insisting(place, job_id, start, end)
                found = await self._archive.records(job_id, partition)
                following = max(begin, _end_of(found))
                if following < end:
                    found += await self._read_insisting(place, job_id, following, end)
                return [record for record in found if start <= record.offset < end]
        except TimeoutError:
            raise LogUnreachable(f"{self._topic}[{partition}] was not read within {deadline_s} s") from None

    async def _read_insisting(self, place: Place, job_id: str, start: int, end: int) -> list[Record]:
        while True:
            try:
                return await self._read(place, job_id.encode(), start, end)
            except LogUnreachable:
                await asyncio.sleep(_RETRY_PAUSE_S)

    async def read_all(self, job_id: str, partition: int, lies: Lies, deadline_s: float = 10.0) -> list[Record]:
        """All records of a job, as `read_job`; of a sealed one no more is read than where they lie.

        The index is not believed: where what it names does not hold all that the job's seal covers, the log is read.
        What came behind the seal is there as far as the index tells of it, or the archive has it.

        Raises:
            ArchiveUnusable: the log no longer has its birth, and nor has the archive.
            LogGap: the log doesn't have its birth yet.
            LogUnreachable: not read within the deadline.
        """
        try:
            async with asyncio.timeout(deadline_s):
                return await self._read_all(job_id, partition, lies, deadline_s)
        except TimeoutError:
            raise LogUnreachable(f"{self._topic}[{partition}] was not read within {deadline_s} s") from None

    async def _read_all(self, job_id: str, partition: int, lies: Lies, deadline_s: float) -> list[Record]:
        place = (str(self._topic), partition)
        end = (await self._log.end_offsets([place], deadline_s))[place]
        if lies.birth < (await self._log.beginning_offsets([place], deadline_s))[place]:
            return await self._read_archived(job_id, partition, lies)
        reported = (*lies.stretches, *lies.behind)
        if not lies.stretches or not in_order(lies.birth, end, reported):
            return await self.read_job(job_id, partition, lies.birth, end, deadline_s)
        records = await self._read_stretches(job_id, partition, lies.stretches)
        if not await _is_whole(records):
            return await self.read_job(job_id, partition, lies.birth, end, deadline_s)
        return records + await self._read_stretches(job_id, partition, lies.behind)

    async def _read_archived(self, job_id: str, partition: int, lies: Lies) -> list[Record]:
        """What is archived, and what has come behind that: by then the index tells of it, or nobody does."""
        found = await self._archive.records(job_id, partition)
        if not await _is_whole(found):
            raise ArchiveUnusable("archive_corrupt", f"the bundle of job {job_id} does not hold what its seal covers")
        covered = _end_of(found)
        later = tuple((max(begin, covered), end) for begin, end in lies.behind if end > covered)
        return found + await self._read_stretches(job_id, partition, later)

    async def _read_stretches(self, job_id: str, partition: int, stretches: tuple[Stretch, ...]) -> list[Record]:
        found: list[Record] = []
        for begin, end in stretches:
            found += await self._read_insisting((self._topic, partition), job_id, begin, end)
        return found

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


def _end_of(records: list[Record]) -> int:
    """Behind the last of them."""
    return records[-1].offset + 1 if records else 0


async def _is_whole(records: list[Record]) -> bool:
    if len(records) > _LONG:
        return await asyncio.to_thread(holds_what_was_sealed, records)
    return holds_what_was_sealed(records)
