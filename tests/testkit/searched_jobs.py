"""Searches over jobs that a test puts into a log in memory.

`python -m tests.testkit.searched_jobs FOLDER COUNT STATEMENT` puts so many jobs, asks now and then, and kills itself
with -9 right before it would say that statement to its database.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from aetheris.gateway.core.job_searches import JobSearch
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import Unavailable
from aetheris.gateway.job_search_index import JobSearchIndex
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import JobIndexEntry
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.events import Event
from aetheris.runtime.base.clock import SystemClock
from aetheris.testkit.memory import MemoryAppender, MemoryLog
from tests.testkit import histories as h
from tests.testkit.job_histories import refunded

LISTED_S = 30 * 86400.0
TENANT = h.created().tenant


def caller(tenant: str = "", id_: str = "ann", *roles: Role) -> Principal:
    return Principal(id_, tenant or TENANT, PrincipalKind.PERSON, frozenset(roles or (Role.READ, Role.READ_PAYLOADS)))


ANN = caller()


class Searched:
    """A search over jobs that a test puts into a log in memory."""

    def __init__(self, folder: Path | None = None) -> None:
        self.log = MemoryLog(1)
        self.appender = MemoryAppender(self.log)
        self.jobs: dict[str, list[Record]] = {}
        self.reads: list[str] = []
        self.index = self.begun(folder)

    def begun(self, folder: Path | None) -> JobSearchIndex:
        """A search as a process begins it."""
        return JobSearchIndex(
            self.log, self._read, SystemClock(), folder=folder, patience_s=20.0, listed_for_s=LISTED_S
        )

    async def again(self, folder: Path) -> None:
        """Another process begins where this one ends."""
        await self.index.close()
        self.index = self.begun(folder)

    async def _read(self, entry: JobIndexEntry) -> Sequence[Record]:
        self.reads.append(entry.job_id)
        if entry.job_id == "bad":
            raise Unavailable("job_unreadable", "no")
        return self.jobs.get(entry.job_id, [])

    async def put(self, job_id: str, *events: Event, status: str = "completed", at: int = 0, **born: Any) -> None:
        """A job with these events, all of which say its id; and its line."""
        given = [event.model_copy(update={"job_id": job_id}) for event in events]
        given[0] = given[0].model_copy(update={"submitted_by": "agent-7", **born})
        made = [draft(Topic.JOBS_EVENTS, one, key=job_id, id=f"{job_id}-{n}", source="t", time=_time(at))
                for n, one in enumerate(given)]  # fmt: skip
        self.jobs[job_id] = [Record(one.topic, 0, n, 0, one.key, one.headers, one.value) for n, one in enumerate(made)]
        await self.line(job_id, status=status, at=at, **born)

    async def line(self, job_id: str, *, status: str, at: int = 0, **more: Any) -> None:
        line = JobIndexEntry(
            job_id=job_id,
            birth=0,
            request_hash="r",
            status=status,
            tenant=more.get("tenant", TENANT),
            submitted_by=more.get("submitted_by", "agent-7"),
            created_at=_time(at),
        )
        await self.appender.append(
            [(draft(Topic.JOBS_INDEX, line, key=job_id, id=f"l{at}", source="t", time=_time(at)),)]
        )

    async def put_one(self, number: int) -> None:
        """One of many that are much alike."""
        await self.put(f"j{number}", *refunded(), goal=f"goal {number}", plan=None, at=number)

    async def found(self, who: Principal = ANN, /, **asked: Any) -> list[str]:
        return [one["job_id"] for one in (await self.index.found(who, JobSearch(**asked), None, 50))["jobs"]]


def _time(at: int) -> str:
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=at)).isoformat()


@asynccontextmanager
async def searched(folder: Path | None = None) -> AsyncGenerator[Searched]:
    made = Searched(folder)
    await made.appender.start()
    try:
        yield made
    finally:
        await made.index.close()


async def _dies(folder: Path, jobs: int, statement: int) -> None:
    said = count(1)

    def trace(_statement: str) -> None:
        if next(said) == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    async with searched(folder) as one:
        await one.found()
        one.index._database._rows.set_trace_callback(trace)  # pyright: ignore[reportPrivateUsage]
        for number in range(jobs):
            await one.put_one(number)
            if number % 40 == 0:
                await one.found()
        await one.found()


if __name__ == "__main__":
    asyncio.run(_dies(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
