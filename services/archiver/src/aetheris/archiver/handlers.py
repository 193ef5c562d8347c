"""Seals become files: a range of jobs.seals at a time, each settled before anything of it is written."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import structlog

from aetheris.archiver.core.judged_jobs import NotAsSealed, judged_rows
from aetheris.archiver.core.ranges import BadRange, SealRange, file_path
from aetheris.archiver.core.sealed_jobs import SealedJob, SealedJobs
from aetheris.archiver.job_records import READERS, NoRecords, RecordsAway, SealedJobReader
from aetheris.archiver.parquet_files import parquet
from aetheris.archiver.parquet_store import ParquetStore
from aetheris.protocol.base.records import Record
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.blobs.store import BlobsUnreachable
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.views.query_rows import COLUMNS, QueryRows

MOST_JOBS = 1000
"""Of a range: what is in memory at a time."""
MOST_BYTES = 64 * 1024 * 1024
"""Of a range's records, but for its last job's."""
RETRY_S = 2.0
LOOK_S = 0.5

_log = structlog.get_logger(__name__)
T = TypeVar("T")

Part = tuple[str, str]
"""(tenant, day)."""


class Line(Protocol):
    """A line of jobs.seals."""

    @property
    def offset(self) -> int:
        """Its place."""
        ...

    @property
    def value(self) -> bytes | None:
        """What it says."""
        ...


class LinesMissing(Exception):
    """jobs.seals, which is kept for ever, lacks lines that were not read."""


class SealHandler:
    """Takes the lines of jobs.seals in order, each once; keeps nothing that the store and the log do not say."""

    def __init__(
        self,
        sealed: SealedJobs,
        jobs: SealedJobReader,
        store: ParquetStore,
        clock: Clock,
        metrics: Metrics,
        *,
        every_s: float,
        payloads: bool,
    ) -> None:
        self._sealed = sealed
        self._jobs = jobs
        self._store = store
        self._clock = clock
        self._every_s = every_s
        self._payloads = payloads
        self._settled: SealRange | None = None
        """A range whose files may not be there yet."""
        self._begin = 0
        """Of the range that is being filled, or of `_settled`."""
        self._end = 0
        """Behind the last line that was taken."""
        self._pending: list[SealedJob] = []
        self._since_s: float | None = None
        self._waits: str | None = "has not begun"
        self._refused = 0
        self.written = 0
        """Jobs of the ranges that this process has written."""
        self._lock = asyncio.Lock()
        metrics.watch(Metric.PARQUET_LATE, lambda: self.late_s)
        metrics.watch(Metric.PARQUET_REFUSED, lambda: self._refused)

    def unready(self) -> str | None:
        """What it waits for, if it does."""
        return self._waits

    @property
    def late_s(self) -> int:
        """For how long a job waits longer than it should."""
        since_s = self._since_s
        return 0 if since_s is None else max(0, round(self._clock.monotonic() - since_s - self._every_s))

    async def begin(self) -> None:
        """Go on with the range that was settled last: whoever did that may have died before its files were there."""
        self._settled = await self._insist(self._store.last)
        if self._settled is not None:
            self._begin = self._settled.begin
        self._waits = None

    async def came(self, lines: Sequence[Line]) -> None:
        """The next lines; returns when there is room for more.

        Raises:
            LinesMissing: they are not the next ones.
        """
        async with self._lock:
            for line in lines:
                if line.offset < self._end:
                    continue
                if line.offset > self._end:
                    raise LinesMissing(f"jobs.seals[0]: {self._end} to {line.offset - 1} are gone")
                self._take(line)
            while self._is_full():
                await self._write()

    async def run(self, stop: asyncio.Event) -> None:
        """Write what has waited long enough, until `stop` is set."""
        while not stop.is_set():
            await self._clock.sleep(LOOK_S)
            async with self._lock:
                if self._is_due():
                    await self._write()

    def _take(self, line: Line) -> None:
        job = self._sealed.take(line.offset, line.value or b"")
        self._end = line.offset + 1
        if job is not None and line.offset >= self._begin:
            self._pending.append(job)
            if self._since_s is None:
                self._since_s = self._clock.monotonic()

    def _is_full(self) -> bool:
        if self._settled is not None:
            return self._end >= self._settled.end
        return len(self._pending) >= MOST_JOBS

    def _is_due(self) -> bool:
        if self._settled is not None:
            return self._end >= self._settled.end
        return self._since_s is not None and self._clock.monotonic() - self._since_s >= self._every_s

    async def _write(self) -> None:
        """Settle the next range, if none is, and write its files, if its lines are there."""
        if self._settled is None:
            rows, wanted = await self._wanted()
            self._settled = await self._insist(lambda: self._store.settle(wanted))
            if self._settled != wanted:
                return  # another archiver was first: its range is written as it said
        else:
            rows = await self._rows_of(self._settled)
        await self._put(self._settled, rows)
        self.written += self._settled.jobs
        _log.info("written", begin=self._settled.begin, end=self._settled.end, jobs=self._settled.jobs)
        self._begin, self._settled = self._settled.end, None
        self._pending = [job for job in self._pending if job.line >= self._begin]
        self._since_s = self._clock.monotonic() if self._pending else None

    async def _wanted(self) -> tuple[Mapping[Part, QueryRows], SealRange]:
        """As much as fits of what is there, judged; and the range that says so."""
        found: dict[Part, QueryRows] = defaultdict(QueryRows)
        refused: dict[str, str] = {}
        end, count, size = self._end, 0, 0
        for start in range(0, min(len(self._pending), MOST_JOBS), READERS):
            jobs = self._pending[start : min(start + READERS, MOST_JOBS)]
            for job, read in zip(jobs, await asyncio.gather(*map(self._read, jobs)), strict=True):
                code = read if isinstance(read, str) else self._add(found, job, read)
                if code is not None:
                    refused[job.job_id] = code
                    _log.error("a job can't be written", job_id=job.job_id, code=code)
                count += code is None
                size += 0 if isinstance(read, str) else sum(len(record.value) for record in read)
            if size >= MOST_BYTES or start + len(jobs) == MOST_JOBS:
                end = jobs[-1].line + 1
                break
        self._refused += len(refused)
        files = tuple(sorted(self._paths(found, self._begin, end)))
        return found, SealRange(begin=self._begin, end=end, jobs=count, refused=refused, files=files)

    async def _rows_of(self, settled: SealRange) -> Mapping[Part, QueryRows]:
        """The rows of a range that somebody has settled."""
        found: dict[Part, QueryRows] = defaultdict(QueryRows)
        jobs = [one for one in self._pending if one.line < settled.end and one.job_id not in settled.refused]
        for start in range(0, len(jobs), READERS):
            portion = jobs[start : start + READERS]
            for job, read in zip(portion, await asyncio.gather(*map(self._read, portion)), strict=True):
                code = read if isinstance(read, str) else self._add(found, job, read)
                if code is not None:  # whoever settled it could read it
                    _log.error("a job is not as it was", job_id=job.job_id, code=code)
        return found

    async def _read(self, job: SealedJob) -> Sequence[Record] | str:
        """The records of a job, however long that takes; a code where they will not be had."""
        while True:
            try:
                found = await self._jobs.of(job.job_id, job.event_count if job.amends is not None else 0)
            except NoRecords as error:
                return error.code
            except RecordsAway as error:
                await self._wait(error.code, job_id=job.job_id)
            else:
                self._waits = None
                return found

    def _add(self, found: dict[Part, QueryRows], job: SealedJob, records: Sequence[Record]) -> str | None:
        """Put the rows of a job where they belong; a code where it is not as it was sealed."""
        try:
            rows = judged_rows(job, records, payloads=self._payloads)
        except NotAsSealed as error:
            return error.code
        except Exception as error:  # noqa: BLE001  whatever is wrong with a job concerns that job
            _log.error("a job can't be judged", job_id=job.job_id, error=type(error).__name__)
            return "unjudged"
        row = rows.jobs[0]
        found[row["tenant"], row["sealed_at"].date().isoformat()].add(rows)
        return None

    async def _put(self, settled: SealRange, rows: Mapping[Part, QueryRows]) -> None:
        """The files of a range; that of jobs last: who finds a job there finds all of it."""
        for (tenant, day), of_part in sorted(rows.items()):
            for table in reversed(tuple(COLUMNS)):
                if of_part.of(table):
                    path = file_path(tenant, table, day, settled.begin, settled.end)
                    data = await asyncio.to_thread(parquet, table, of_part.of(table))
                    await self._insist(lambda path=path, data=data: self._store.put(path, data))

    @staticmethod
    def _paths(rows: Mapping[Part, QueryRows], begin: int, end: int) -> Iterator[str]:
        for (tenant, day), of_part in rows.items():
            for table in COLUMNS:
                if of_part.of(table):
                    yield file_path(tenant, table, day, begin, end)

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What the store answers, once it does."""
        while True:
            try:
                found = await ask()
            except BlobsUnreachable as error:
                await self._wait(error.code)
            except BadRange as error:
                await self._wait(str(error))
            else:
                self._waits = None
                return found

    async def _wait(self, code: str, **of: str) -> None:
        if self._waits != code:
            _log.warning("waits", code=code, **of)
        self._waits = code
        await self._clock.sleep(RETRY_S)
