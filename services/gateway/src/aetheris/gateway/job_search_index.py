"""Jobs as searches find them: an SQLite database of its own process, made of jobs.index and the jobs' records.

Nothing is read for it while nobody asks: who asks first pays for what was appended since the last question. A job's
records are read when it is first seen, and when it has ended: a long job costs what it is long, twice. It holds the
jobs that the lists hold, ends with the process, and is no source of anything.
"""

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import structlog

from aetheris.gateway.core.cursors import cursor_at
from aetheris.gateway.core.job_searches import JobSearch, moment, sql_of
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import Problem, Unavailable
from aetheris.gateway.core.searchable_job import SearchableJob, searchable
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.sealed_part import as_sealed
from aetheris.protocol.messages.commands import JobIndexEntry
from aetheris.protocol.messages.envelope import Envelope, Undecodable, decode_message
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.interface import Log
from aetheris.runtime.log.replay import replay
from aetheris.views.job_history import job_history

_log = structlog.get_logger(__name__)

_ENDED = frozenset({"completed", "failed", "cancelled"})
_LONGEST_S = 2.0
"""What one search may take of the processor."""
_STEPS = 10_000
_TABLES = """
CREATE TABLE job (
  n INTEGER PRIMARY KEY, job_id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, submitted_by TEXT NOT NULL,
  agent TEXT NOT NULL, status TEXT NOT NULL, created_at TEXT NOT NULL, labels TEXT NOT NULL,
  is_whole INTEGER NOT NULL, ends_ms INTEGER
);
CREATE INDEX job_place ON job (tenant, created_at, job_id);
CREATE INDEX job_end ON job (ends_ms);
CREATE TABLE label (n INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL);
CREATE INDEX label_value ON label (name, value, n);
CREATE INDEX label_job ON label (n);
CREATE TABLE call (n INTEGER NOT NULL, tool TEXT NOT NULL, external_id TEXT NOT NULL);
CREATE INDEX call_tool ON call (tool, n);
CREATE INDEX call_id ON call (external_id, n);
CREATE INDEX call_job ON call (n);
CREATE TABLE argument (n INTEGER NOT NULL, tool TEXT NOT NULL, path TEXT NOT NULL, value TEXT NOT NULL);
CREATE INDEX argument_value ON argument (path, value, n);
CREATE INDEX argument_job ON argument (n);
CREATE VIRTUAL TABLE words USING fts5 (told, error, payload);
"""

ReadRecords = Callable[[JobIndexEntry], Awaitable[Sequence[Record]]]
"""A job's records, as far as they are in the log; raises LogError, Unavailable."""


class JobSearchIndex:
    """Answers searches."""

    def __init__(self, log: Log, read: ReadRecords, clock: Clock, *, patience_s: float, listed_for_s: float) -> None:
        self._log = log
        self._read = read
        self._clock = clock
        self._patience_s = patience_s
        self._listed_for_ms = round(listed_for_s * 1000)
        self._known: dict[int, int] = {}
        """Partition of jobs.index → up to where it is known."""
        self._rows = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._rows.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _TABLES)
        self._turn = threading.Lock()
        self._catching_up: asyncio.Task[None] | None = None

    async def found(self, caller: Principal, asked: JobSearch, cursor: str | None, limit: int) -> dict[str, Any]:
        """{jobs, cursor}: the tenant's jobs that are meant, newest first, as lists have them.

        Raises:
            BadRequest: no cursor of this search. Unavailable: the log is still being read, or it takes too long.
        """
        statement, parameters = sql_of(asked, caller, cursor, limit + 1)
        await self._up_to_date()
        rows = await asyncio.to_thread(self._select, statement, parameters)
        taken = rows[:limit]
        more = len(rows) > limit
        last = f"{taken[-1][2]}|{taken[-1][0]}" if more else ""
        jobs = [_summary(row, caller.tenant) for row in taken]
        return {"jobs": jobs, "cursor": cursor_at(last, caller.tenant, asked.subject) if more else None}

    async def close(self) -> None:
        """Stop reading."""
        if self._catching_up is not None:
            self._catching_up.cancel()
            await asyncio.wait({self._catching_up})
        with self._turn:
            self._rows.close()

    async def _up_to_date(self) -> None:
        if self._catching_up is not None and not self._catching_up.done():
            await self._wait(self._catching_up)  # it may have begun before what is asked for was appended
        if self._catching_up is None or self._catching_up.done():
            self._catching_up = asyncio.create_task(self._catch_up())
        await self._wait(self._catching_up)

    async def _wait(self, task: "asyncio.Task[None]") -> None:
        done, _ = await asyncio.wait({task}, timeout=self._patience_s)
        if not done:
            raise Unavailable("jobs_indexing", "what jobs are searched by is being read from the log: ask again")
        task.result()

    async def _catch_up(self) -> None:
        places = [(str(Topic.JOBS_INDEX), number) for number in range(await self._log.partitions(Topic.JOBS_INDEX))]
        begins, ends = await self._log.beginning_offsets(places), await self._log.end_offsets(places)
        for place, end in ends.items():
            start = max(begins[place], self._known.get(place[1], 0))
            async for records in replay(self._log, place, start, end):
                for record, entry in _newest(records).values():
                    await self._take(record, entry)
                self._known[place[1]] = records[-1].offset + 1
        await asyncio.to_thread(self._drop_ended, self._now_ms())

    async def _take(self, record: Record, entry: JobIndexEntry) -> None:
        """One line of jobs.index: of a job that isn't known yet, or has ended, its records are read."""
        ends_ms = record.timestamp_ms + self._listed_for_ms if entry.stretches else None
        if ends_ms is not None and ends_ms <= self._now_ms():
            await asyncio.to_thread(self._drop, entry.job_id)
            return
        known = await asyncio.to_thread(self._is_whole, entry.job_id)
        has_ended = entry.status in _ENDED
        if known is None or (has_ended and not known):
            job = await self._made(entry)
            if job is not None:
                await asyncio.to_thread(self._put, job, _created(entry), is_whole=has_ended)
        await asyncio.to_thread(self._stand, entry, ends_ms)

    async def _made(self, entry: JobIndexEntry) -> SearchableJob | None:
        """What can be searched of a job; None where it can't be read: one bad job keeps no other from being found."""
        try:
            records = await self._read(entry)
        except Problem as problem:
            _log.warning("a job can't be searched", job_id=entry.job_id, reason=problem.code)
            return None
        job = await asyncio.to_thread(lambda: searchable(job_history(as_sealed(records))))
        return job if job is not None and job.job_id == entry.job_id else None

    def _select(self, statement: str, parameters: Sequence[Any]) -> list[tuple[str, ...]]:
        ends_s = time.monotonic() + _LONGEST_S
        with self._turn:
            self._rows.set_progress_handler(lambda: time.monotonic() > ends_s, _STEPS)
            try:
                return self._rows.execute(statement, parameters).fetchall()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname != "SQLITE_INTERRUPT":
                    raise
                raise Unavailable("search_too_long", "the search takes too long: ask for less") from None
            finally:
                self._rows.set_progress_handler(None, 0)

    def _is_whole(self, job_id: str) -> bool | None:
        with self._turn:
            found = self._rows.execute("SELECT is_whole FROM job WHERE job_id = ?", (job_id,)).fetchone()
        return None if found is None else bool(found[0])

    def _put(self, job: SearchableJob, created_at: str, *, is_whole: bool) -> None:
        fields = (job.job_id, job.tenant, job.submitted_by, job.agent, "", created_at, json.dumps(dict(job.labels)))
        with self._turn:
            self._rows.execute("BEGIN")
            try:
                self._delete("job_id = ?", job.job_id)
                insert = "INSERT INTO job VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, NULL)"
                n = self._rows.execute(insert, (*map(_kept, fields), is_whole)).lastrowid
                self._rows.executemany(
                    "INSERT INTO label VALUES (?, ?, ?)",
                    [(n, _kept(name), _kept(value)) for name, value in job.labels.items()],
                )
                self._rows.executemany(
                    "INSERT INTO call VALUES (?, ?, ?)", [(n, _kept(tool), _kept(id_)) for tool, id_ in job.calls]
                )
                self._rows.executemany(
                    "INSERT INTO argument VALUES (?, ?, ?, ?)",
                    [(n, _kept(one.tool), _kept(one.path), _kept(one.value)) for one in job.arguments],
                )
                words = (n, _kept(job.told), _kept(job.error), _kept(job.payload))
                self._rows.execute("INSERT INTO words (rowid, told, error, payload) VALUES (?, ?, ?, ?)", words)
                self._rows.execute("COMMIT")
            except BaseException:
                self._rows.execute("ROLLBACK")
                raise

    def _stand(self, entry: JobIndexEntry, ends_ms: int | None) -> None:
        with self._turn:
            update = "UPDATE job SET status = ?, ends_ms = ? WHERE job_id = ?"
            self._rows.execute(update, (entry.status, ends_ms, entry.job_id))

    def _drop(self, job_id: str) -> None:
        with self._turn:
            self._delete("job_id = ?", job_id)

    def _drop_ended(self, now_ms: int) -> None:
        with self._turn:
            self._delete("ends_ms <= ?", now_ms)

    def _delete(self, which: str, value: str | int) -> None:
        for (n,) in self._rows.execute(f"SELECT n FROM job WHERE {which}", (value,)).fetchall():  # noqa: S608  ours
            for table in ("label", "call", "argument", "job"):
                self._rows.execute(f"DELETE FROM {table} WHERE n = ?", (n,))  # noqa: S608  ours
            self._rows.execute("DELETE FROM words WHERE rowid = ?", (n,))

    def _now_ms(self) -> int:
        return round(self._clock.now().timestamp() * 1000)


def _newest(records: Sequence[Record]) -> Mapping[str, tuple[Record, JobIndexEntry]]:
    """The last line of each job."""
    found: dict[str, tuple[Record, JobIndexEntry]] = {}
    for record in records:
        try:
            envelope = decode_message(record) if record.value else None
        except Undecodable:
            continue
        if isinstance(envelope, Envelope) and isinstance(envelope.body, JobIndexEntry):
            found[envelope.body.job_id] = (record, envelope.body)
    return found


def _created(entry: JobIndexEntry) -> str:
    try:
        return moment(datetime.fromisoformat(entry.created_at))
    except (ValueError, OverflowError):
        return entry.created_at


def _kept(text: str) -> str:
    """A text that SQLite takes."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def _summary(row: Sequence[str], tenant: str) -> dict[str, Any]:
    job_id, status, created_at, submitted_by, labels = row
    named = {"job_id": job_id, "status": status, "created_at": created_at, "submitted_by": submitted_by}
    told: Any = json.loads(labels)
    return {**named, "tenant": tenant, **({"labels": told} if told else {})}
