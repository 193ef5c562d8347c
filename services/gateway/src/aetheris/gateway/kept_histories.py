"""Histories of long jobs, kept from page to page: what is folded once is not folded again until the job has more."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.views import Row
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.sealed_part import as_sealed
from aetheris.runtime.log.job_lines import JobLine
from aetheris.views.job_history import Blobs, JobHistory, job_history

LONG = 1_000
"""Records from which on a job's history is kept; a shorter one is folded in milliseconds."""
MOST_RECORDS = 60_000
MOST_BYTES = 64 * 1024 * 1024
"""Of all that are kept together, of their values; a job that has more by itself is folded at each question."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A job's records from its birth up to an offset, and what they tell; nobody changes it."""

    birth: int
    records: Sequence[Record]
    until: int
    size: int
    line: JobLine | None
    """The line of jobs.index by which all is read that there is."""
    history: JobHistory


class KeptHistories:
    """Whoever asks gets the history of all that the log has of the job now."""

    def __init__(self, reader: JobReader, blobs: Blobs, deadlines: Deadlines) -> None:
        self._reader = reader
        self._deadlines = deadlines
        self._blobs = blobs
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def of(self, row: Row) -> JobHistory | None:
        """The job's history; None before its birth is in the log. To be read only.

        Raises:
            Unavailable: the log, or the store of blobs, does not answer.
        """
        lock = self._asking.get(row.job_id)
        if lock is None:
            lock = self._asking[row.job_id] = asyncio.Lock()
        async with lock:  # who asks for the next page, or the same, waits for the one fold
            return await self._of(row)

    async def _of(self, row: Row) -> JobHistory | None:
        kept = self._found(row)
        async with self._deadlines.deadline():
            line = self._reader.sealed_line(row)
            if kept is not None and line is not None and kept.line == line:
                return kept.history
            end = await self._reader.end(row.job_id)
            records = await self._records(row, None if line is not None else kept, end)
        if kept is not None and records is kept.records:
            history = kept.history
        else:  # however long it takes: what is folded is kept
            history = await asyncio.to_thread(self._folded, records)
        if row.first_offset is not None and history.unchecked == 0:  # what was not there may come
            size = sum(len(record.value) for record in records)
            self._keep(row.job_id, _Kept(row.first_offset, records, end, size, line, history))
        return history if records else None

    async def _records(self, row: Row, kept: _Kept | None, end: int) -> Sequence[Record]:
        """All that the log has of the job; those that are kept themselves, where there are no others."""
        if kept is None:
            return await self._reader.records(row, end)
        news = await self._reader.between(row.job_id, kept.until, end) if kept.until < end else []
        return [*kept.records, *news] if news else kept.records

    def _folded(self, records: Sequence[Record]) -> JobHistory:
        return job_history(as_sealed(records), self._blobs)

    def _found(self, row: Row) -> _Kept | None:
        kept = self._kept.get(row.job_id)
        if kept is None or kept.birth != row.first_offset:
            return None
        self._kept.move_to_end(row.job_id)
        return kept

    def _keep(self, job_id: str, one: _Kept) -> None:
        self._kept.pop(job_id, None)
        if len(one.records) >= LONG:
            self._kept[job_id] = one
        while self._kept and (
            sum(len(kept.records) for kept in self._kept.values()) > MOST_RECORDS
            or sum(kept.size for kept in self._kept.values()) > MOST_BYTES
        ):
            self._kept.popitem(last=False)
