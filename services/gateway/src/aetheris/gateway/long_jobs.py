"""Long jobs, as far as this gateway has read them: a record is numbered and folded once, and not at each question."""

import asyncio
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.views import Row
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import Sequence as Numbers
from aetheris.protocol.fold.job_log import fold_event, next_logged_event, since_creation
from aetheris.protocol.fold.state import JobState
from aetheris.runtime.log.job_lines import JobLine

LONG = 1_000
"""Events from which on a job is kept."""
_MOST_KEPT = 100_000
"""Events of all that are kept, some 4 KiB each with what they were folded to; the job asked for last is always kept."""
_BREATH = 500
"""Records after which a long job lets other requests go on."""
_FIRST = 4_000
"""Offsets in which the first events are looked for before all of the job is read."""


class NumberedRecord(NamedTuple):
    """A record of a job with its place in it, from 1."""

    sequence: int
    record: Record
    is_void: bool


class ReadJob:
    """One job, from its birth up to an offset."""

    def __init__(self, birth: int) -> None:
        self.birth = birth
        self.until = birth
        """Below it, every record of the job is folded."""
        self.state: JobState | None = None
        self.sealed_by: JobLine | None = None
        """The line of jobs.index by which all is read that there is."""
        self._numbers = Numbers()
        self._offsets = array("q")
        self._void: set[int] = set()

    @property
    def last(self) -> int:
        """The number of its last event so far."""
        return len(self._offsets)

    def take(self, records: Sequence[Record], until: int) -> None:
        """Go on by records that follow without a gap up to `until`; those that are folded already are passed over."""
        for record in records:
            if record.offset < self.until:
                continue
            logged = next_logged_event(self._numbers, record)
            self.state, _ = fold_event(self.state, logged.event, record.offset)
            if logged.sequence is not None:
                self._offsets.append(record.offset)
                if logged.is_void:
                    self._void.add(logged.sequence)
        self.until = max(self.until, until)

    def offset_of(self, sequence: int) -> int:
        """Where an event lies; 1 ≤ sequence ≤ last."""
        return self._offsets[sequence - 1]

    def numbered(self, records: Sequence[Record]) -> Iterator[NumberedRecord]:
        """Those of the records that have a number."""
        for record in records:
            place = bisect_left(self._offsets, record.offset)
            if place < self.last and self._offsets[place] == record.offset:
                yield NumberedRecord(place + 1, record, place + 1 in self._void)


class LongJobs:
    """Jobs, folded up to the end of the log; of long ones what was folded is kept for the next question."""

    def __init__(self, reader: JobReader) -> None:
        self._reader = reader
        self._kept: OrderedDict[str, ReadJob] = OrderedDict()

    async def state(self, row: Row) -> JobState | None:
        """The job as its log says; not to be kept over an await: the next question changes it. Raises LogError."""
        job = self._job(row)
        if job is None:
            return None
        await self._read(job, row)
        return job.state

    async def events(self, row: Row, after: int, limit: int) -> list[NumberedRecord]:
        """At most so many of its records with numbers above `after`; raises LogError."""
        job = self._job(row)
        if job is None:
            return []
        read: Sequence[Record] = ()
        if job.last < after + limit and job.until == job.birth and self._reader.sealed_line(row) is None:
            read = await self._read_first(job, row)
        if job.last < after + limit:
            read = await self._read(job, row) or read
        last = min(job.last, after + limit)
        if after >= last:
            return []
        first, end = job.offset_of(after + 1), job.offset_of(last) + 1
        if not read or read[0].offset > first or read[-1].offset + 1 < end:
            read = await self._reader.between(row.job_id, first, end)
        return list(job.numbered([one for one in read if first <= one.offset < end]))

    def _job(self, row: Row) -> ReadJob | None:
        """As it is kept, or from its birth; None before that is in the log."""
        if row.first_offset is None:
            return None
        kept = self._kept.get(row.job_id)
        if kept is not None and kept.birth == row.first_offset:
            self._kept.move_to_end(row.job_id)
            return kept
        return ReadJob(row.first_offset)

    async def _read_first(self, job: ReadJob, row: Row) -> Sequence[Record]:
        """What lies next behind its birth."""
        until = min(await self._reader.end(row.job_id), job.birth + _FIRST)
        if until <= job.birth:
            return ()
        found = list(since_creation(await self._reader.between(row.job_id, job.birth, until)))
        if found:
            await self._take(job, row.job_id, found, until)
        return found

    async def _read(self, job: ReadJob, row: Row) -> Sequence[Record]:
        """All that is not read yet."""
        line = self._reader.sealed_line(row)
        if line is not None and job.sealed_by == line:
            return ()
        end = await self._reader.end(row.job_id)
        if line is not None:  # it costs what it is long, however far its records lie apart
            found, until = await self._reader.records(row, end), job.until
        elif job.until > job.birth:
            found, until = await self._reader.between(row.job_id, job.until, end) if job.until < end else [], end
        else:
            found, until = await self._reader.records(row, end), end
        await self._take(job, row.job_id, found, until)
        job.sealed_by = line
        return found

    async def _take(self, job: ReadJob, job_id: str, records: Sequence[Record], until: int) -> None:
        for start in range(0, len(records), _BREATH):
            part = records[start : start + _BREATH]
            job.take(part, part[-1].offset + 1)
            if job.last >= LONG:
                self._keep(job_id, job)
            await asyncio.sleep(0)
        if records or job.until > job.birth:
            job.take((), until)

    def _keep(self, job_id: str, job: ReadJob) -> None:
        known = self._kept.get(job_id)
        if known is not None and known.birth == job.birth and known.until >= job.until:
            return  # somebody who asked at the same time is further
        self._kept[job_id] = job
        self._kept.move_to_end(job_id)
        while len(self._kept) > 1 and sum(one.last for one in self._kept.values()) > _MOST_KEPT:
            self._kept.popitem(last=False)
