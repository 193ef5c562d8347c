"""Jobs of tenants, read from the log: what belongs to another tenant is not there."""

import asyncio
from collections.abc import AsyncIterator, Container
from contextlib import AbstractAsyncContextManager

from aetheris.gateway.core import access
from aetheris.gateway.core.decisions import JobSnapshot
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import Unavailable
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.feed import Feed, FeedClosed, JobFeed
from aetheris.gateway.index import JobIndex
from aetheris.gateway.job_rows import JobRows
from aetheris.gateway.views import Row
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import Sequence, fold_into, since_creation
from aetheris.protocol.fold.state import JobState
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.interface import Log
from aetheris.runtime.log.job_lines import JobLine

_BREATH = 500
"""Records after which a long fold lets other requests go on."""
_PORTION = 100
"""Events of a stream that are sent at once, at most."""


class JobReader:
    """Finds a job's row, reads its records, folds them, and listens to what comes."""

    def __init__(
        self,
        *,
        log: Log,
        history: JobLogReader,
        feed: Feed,
        index: JobIndex,
        rows: JobRows,
        deadlines: Deadlines,
    ) -> None:
        self._log = log
        self._history = history
        self._feed = feed
        self._index = index
        self._rows = rows
        self._deadlines = deadlines

    async def row(self, caller: Principal, job_id: str) -> Row:
        """The row of a job that the caller may see.

        Raises:
            NotFound, Forbidden.
            ViewsLost, RedisUnavailable, LogError: within a deadline.
        """
        row = await self._rows.find(job_id)
        if row is None or row.tenant != caller.tenant:
            raise access.unknown_job()
        access.check_reach(caller, row.submitted_by)
        return row

    async def check(self, caller: Principal, job_id: str) -> Row:
        """As `row`, within a deadline of its own.

        Raises:
            NotFound, Unavailable.
        """
        async with self._deadlines.deadline():
            return await self.row(caller, job_id)

    async def fold(self, row: Row) -> JobSnapshot:
        """The job as its log says; raises LogError within a deadline."""
        end = await self.end(row.job_id)
        state: JobState | None = None
        numbers = Sequence()
        for count, record in enumerate(await self.records(row, end), start=1):
            state = fold_into(state, record, numbers)
            if count % _BREATH == 0:
                await asyncio.sleep(0)
        return JobSnapshot(row.job_id, state, end)

    async def planned(self, caller: Principal, job_id: str, news: JobFeed) -> JobSnapshot:
        """A job whose plan is in the log; of one just submitted that is awaited.

        Raises:
            NotFound, Unavailable, and as `row`.
        """
        while True:
            seen = await self.fold(await self.row(caller, job_id))
            if seen.state is not None and seen.state.revision >= 0:
                return seen
            try:
                await news.get()
            except FeedClosed:
                raise Unavailable("deadline", "the gateway is stopping; ask again") from None

    async def end(self, job_id: str) -> int:
        """The end of the job's partition; raises LogError."""
        place, _ = self._feed.place_of(job_id)
        return (await self._log.end_offsets([place], self._deadlines.request_s))[place]

    async def records(self, row: Row, end: int) -> list[Record]:
        """The job's records below `end`, from its birth on; of a sealed one no more is read than where they lie.

        Raises LogError.
        """
        line, start = self._index.line(row.job_id), row.first_offset
        if row.birth is None:  # whoever took it up may have placed it elsewhere than was thought
            birth = self._index.birth_of(row.job_id)
            start = start if birth is None else birth
        if start is None or start >= end:
            return []
        if line is None or line.birth != start:
            return list(since_creation(await self.between(row.job_id, start, end)))
        (_, partition), _ = self._feed.place_of(row.job_id)
        found = await self._history.read_all(row.job_id, partition, line, self._deadlines.request_s)
        return [record for record in since_creation(found) if record.offset < end]

    def sealed_line(self, row: Row) -> JobLine | None:
        """What jobs.index says of where a sealed job's records lie; None of one that is not sealed."""
        line = self._index.line(row.job_id)
        return line if line is not None and line.birth == row.first_offset and line.stretches else None

    async def between(self, job_id: str, start: int, end: int) -> list[Record]:
        """The job's records at the offsets from `start` up to, without, `end`; raises LogError."""
        (_, partition), _ = self._feed.place_of(job_id)
        return await self._history.read_job(job_id, partition, start, end, self._deadlines.request_s)

    async def spliced(self, row: Row, news: JobFeed) -> AsyncIterator[list[Record]]:
        """The job's records, some at a time: history up to now, then `news`, which listens already.

        Raises:
            FeedClosed, LogError.
        """
        end = await self.end(row.job_id)
        history = await self.records(row, end)
        for start in range(0, len(history), _PORTION):
            yield history[start : start + _PORTION]
        while True:
            yield [record for record in await news.take(_PORTION) if record.offset >= end]

    def listening(
        self, job_id: str, types: Container[bytes | None] | None = None
    ) -> AbstractAsyncContextManager[JobFeed]:
        """Listen to a job; raises Unavailable."""
        return self._feed.subscribe(job_id, types, self._deadlines.deadline)
