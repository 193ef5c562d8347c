"""Jobs as searches find them: an SQLite database, made of jobs.index and the jobs' records (`search_database`).

Nothing is read for it while nobody asks: who asks first pays for what was appended since the last question, also one to
a process before this. A job's records are read when it is first seen, and when it has ended: a long job costs what it
is long, twice. It holds the jobs that the lists hold, and is no source of anything.
"""

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from aetheris.gateway.core.cursors import cursor_at
from aetheris.gateway.core.job_searches import JobSearch, moment, sql_of
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import Problem, Unavailable
from aetheris.gateway.core.searchable_job import SearchableJob, searchable
from aetheris.gateway.search_database import SearchDatabase
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.sealed_part import as_sealed
from aetheris.protocol.messages.commands import JobIndexEntry
from aetheris.protocol.messages.envelope import Envelope, Undecodable, decode_message
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.interface import Log, Place
from aetheris.runtime.log.replay import replay
from aetheris.views.job_history import job_history

_log = structlog.get_logger(__name__)

_ENDED = frozenset({"completed", "failed", "cancelled"})

ReadRecords = Callable[[JobIndexEntry], Awaitable[Sequence[Record]]]
"""A job's records, as far as they are in the log; raises LogError, Unavailable."""


class JobSearchIndex:
    """Answers searches."""

    def __init__(
        self,
        log: Log,
        read: ReadRecords,
        clock: Clock,
        *,
        folder: Path | None,
        patience_s: float,
        listed_for_s: float,
    ) -> None:
        self._log = log
        self._read = read
        self._clock = clock
        self._patience_s = patience_s
        self._listed_for_ms = round(listed_for_s * 1000)
        self._folder = folder
        self._kept: SearchDatabase | None = None
        self._catching_up: asyncio.Task[None] | None = None

    async def found(self, caller: Principal, asked: JobSearch, cursor: str | None, limit: int) -> dict[str, Any]:
        """{jobs, cursor}: the tenant's jobs that are meant, newest first, as lists have them.

        Raises:
            BadRequest: no cursor of this search. Unavailable: the log is still being read, or it takes too long.
        """
        statement, parameters = sql_of(asked, caller, cursor, limit + 1)
        try:
            await self._up_to_date()
            rows = await asyncio.to_thread(self._database.select, statement, parameters)
        except sqlite3.DatabaseError as error:
            raise await asyncio.to_thread(self._unusable, error) from None
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
        if self._kept is not None:
            await asyncio.to_thread(self._kept.close)

    @property
    def _database(self) -> SearchDatabase:
        if self._kept is None:
            raise _indexing()  # catching up opens it
        return self._kept

    def _unusable(self, error: sqlite3.DatabaseError) -> Unavailable:
        """A damaged one is thrown away; of one that can't be written, such as on a full disk, the log says so."""
        if isinstance(error, sqlite3.OperationalError) or self._kept is None:
            _log.error("what jobs are searched by can't be used", reason=error.sqlite_errorname)
            return Unavailable("search_unusable", "what jobs are searched by can't be used: the gateway's log says why")
        self._kept.start_anew(error.sqlite_errorname)
        return _indexing()

    async def _up_to_date(self) -> None:
        if self._catching_up is not None and not self._catching_up.done():
            await self._wait(self._catching_up)  # it may have begun before what is asked for was appended
        if self._catching_up is None or self._catching_up.done():
            self._catching_up = asyncio.create_task(self._catch_up())
        await self._wait(self._catching_up)

    async def _wait(self, task: "asyncio.Task[None]") -> None:
        done, _ = await asyncio.wait({task}, timeout=self._patience_s)
        if not done:
            raise _indexing()
        task.result()

    async def _catch_up(self) -> None:
        places = [(str(Topic.JOBS_INDEX), number) for number in range(await self._log.partitions(Topic.JOBS_INDEX))]
        begins, ends = await self._log.beginning_offsets(places), await self._log.end_offsets(places)
        if self._kept is None:
            self._kept = await asyncio.to_thread(SearchDatabase, self._folder)
            if not await self._is_of_this_log(begins, ends):
                await asyncio.to_thread(self._kept.start_anew, "it was made of another log")
        known = await asyncio.to_thread(self._database.places)
        for place, end in ends.items():
            start = max(begins[place], known.get(place[1], (0, ""))[0])
            async for records in replay(self._log, place, start, end):
                for record, entry in _newest(records).values():
                    await self._take(record, entry)
                reached = (place[1], records[-1].offset + 1, _digest(records[-1]))
                await asyncio.to_thread(self._database.reached, *reached)
        await asyncio.to_thread(self._database.drop_ended, self._now_ms())

    async def _is_of_this_log(self, begins: Mapping[Place, int], ends: Mapping[Place, int]) -> bool:
        """Whether what was read last is where it was, or was compacted away."""
        for number, (following, last) in (await asyncio.to_thread(self._database.places)).items():
            place = (str(Topic.JOBS_INDEX), number)
            if place not in ends or following > ends[place]:
                return False
            if following - 1 < begins[place]:
                continue
            async for records in replay(self._log, place, following - 1, following):
                if records[0].offset == following - 1 and _digest(records[0]) != last:
                    return False
                break
        return True

    async def _take(self, record: Record, entry: JobIndexEntry) -> None:
        """One line of jobs.index: of a job that isn't known yet, or has ended, its records are read."""
        ends_ms = record.timestamp_ms + self._listed_for_ms if entry.stretches else None
        if ends_ms is not None and ends_ms <= self._now_ms():
            await asyncio.to_thread(self._database.drop, entry.job_id)
            return
        known = await asyncio.to_thread(self._database.is_whole, entry.job_id)
        has_ended = entry.status in _ENDED
        if known is None or (has_ended and not known):
            job = await self._made(entry)
            if job is not None:
                await asyncio.to_thread(self._database.put, job, _created(entry), is_whole=has_ended)
        await asyncio.to_thread(self._database.stand, entry.job_id, entry.status, ends_ms)

    async def _made(self, entry: JobIndexEntry) -> SearchableJob | None:
        """What can be searched of a job; None where it can't be read: one bad job keeps no other from being found."""
        try:
            records = await self._read(entry)
        except Problem as problem:
            _log.warning("a job can't be searched", job_id=entry.job_id, reason=problem.code)
            return None
        job = await asyncio.to_thread(lambda: searchable(job_history(as_sealed(records))))
        return job if job is not None and job.job_id == entry.job_id else None

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


def _digest(record: Record) -> str:
    return hashlib.sha256(record.value or b"").hexdigest()


def _indexing() -> Unavailable:
    return Unavailable("jobs_indexing", "what jobs are searched by is being read from the log: ask again")


def _summary(row: Sequence[str], tenant: str) -> dict[str, Any]:
    job_id, status, created_at, submitted_by, labels = row
    named = {"job_id": job_id, "status": status, "created_at": created_at, "submitted_by": submitted_by}
    told: Any = json.loads(labels)
    return {**named, "tenant": tenant, **({"labels": told} if told else {})}
