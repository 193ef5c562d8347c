"""A verifier's archive without its process: jobs in a log in memory, bundles in a folder."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.stretches import Stretch
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import ArchivedJob, JobBehind, JobIndexEntry, Message
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.blobs.archive import JobArchive
from aetheris.runtime.blobs.store import FolderBlobs
from aetheris.runtime.log.archive_lines import ArchiveLines
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.interface import Appender
from aetheris.runtime.log.job_lines import JobLines
from aetheris.runtime.log.table import Table
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.testkit.memory import MemoryLog
from aetheris.verifier.archiver import Archiver
from aetheris.verifier.keys import SealKeys
from aetheris.verifier.proofs import Proofs
from aetheris.verifier.seallog import SealLog
from tests.testkit.evidence import KEY, OTHER_KEY, SEALED_AT
from tests.testkit.proof_histories import TENANT
from tests.testkit.stored_jobs import StoredJob

DEADLINE_S = 30.0
PLACE = (str(Topic.JOBS_EVENTS), 0)
AT_ONCE = timedelta(0)


class HastyClock(SystemClock):
    """Nobody waits, and somebody may set it."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        """As everywhere else, but for what it was set ahead."""
        return super().monotonic() + self.ahead_s

    async def sleep(self, delay_s: float) -> None:  # noqa: ARG002  it does not
        await asyncio.sleep(0)


@dataclass
class ArchivingVerifier:
    """One partition; `archiver` is not running yet."""

    folder: Path
    log: MemoryLog = field(default_factory=lambda: MemoryLog(partitions=1))

    async def start(self, after: timedelta = AT_ONCE) -> None:
        """Read the tables anew, as a process that starts does."""
        self.appender: Appender = self.log.appender()
        await self.appender.start()
        self.blobs = FolderBlobs(self.folder / "blobs")
        self.index = Table(self.log, Topic.JOBS_INDEX, JobLines())
        self.lines = Table(self.log, Topic.JOBS_ARCHIVE, ArchiveLines())
        await asyncio.gather(self.index.load(), self.lines.load())
        self.clock = HastyClock()
        parts = cast(
            "Any",
            SimpleNamespace(
                log=self.log,
                clock=self.clock,
                blobs=self.blobs,
                appender=self.appender,
                metrics=Metrics("verifier"),
                settings=SimpleNamespace(partitions=1),
            ),
        )
        tables = {Topic.JOBS_INDEX: self.index, Topic.JOBS_ARCHIVE: self.lines}
        worker = cast("Any", SimpleNamespace(tables=tables, numbers=(0,)))
        keys = SealKeys(KEY, OTHER_KEY)
        self.archive = JobArchive(self.blobs, self.lines.get)
        self.history = JobLogReader(self.log, archive=self.archive)
        seals = SealLog(self.log, keys, "test/seals", self.folder / "checkpoint", DEADLINE_S)
        self.proofs = Proofs(parts, self.index, self.history, keys, seals, DEADLINE_S)
        self.archiver = Archiver(parts, worker, self.archive, self.proofs, after)

    @asynccontextmanager
    async def archiving(self) -> AsyncGenerator[Archiver]:
        """While its archiver runs."""
        parts = (self.archiver.run(), self.index.run(), self.lines.run())
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            yield self.archiver
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

    async def store(self, job: StoredJob) -> int:
        """A sealed job, with its line in the log of seals; where it begins."""
        at = (await self.log.end_offsets([PLACE]))[PLACE]
        drafts = tuple(Draft(PLACE[0], job.id.encode(), one.value, one.headers) for one in job.records)
        await self.appender.append([drafts])
        for one in job.records:
            if one.header("ce_type") == b"io.aetheris.job_sealed.v1":
                await self.appender.append([(Draft(str(Topic.JOBS_SEALS), job.id.encode(), one.value, partition=0),)])
        return at

    async def seal_told(self, job: StoredJob, birth: int, stretches: tuple[Stretch, ...] = ()) -> None:
        """Its line in jobs.index."""
        line = JobIndexEntry(
            job_id=job.id,
            birth=birth,
            request_hash="r",
            status="completed",
            tenant=TENANT,
            submitted_by="me",
            created_at=SEALED_AT,
            stretches=stretches or ((birth, birth + len(job.records)),),
        )
        await self.say(Topic.JOBS_INDEX, job.id, line)

    async def late(self, job: StoredJob, value: bytes = b"{}") -> int:
        """A record behind its seal, as jobs.index tells of it; its offset."""
        at = (await self.log.end_offsets([PLACE]))[PLACE]
        await self.appender.append([(Draft(PLACE[0], job.id.encode(), value),)])
        await self.say(Topic.JOBS_INDEX, JobBehind.key_of(job.id), JobBehind(of_job=job.id, stretches=((at, at + 1),)))
        return at

    async def say(self, topic: Topic, key: str, body: Message) -> None:
        """Write a line."""
        await self.appender.append([(draft(topic, body, key=key, id=fresh_id(), source="test", time=SEALED_AT),)])

    def line(self, job_id: str) -> ArchivedJob | None:
        """What jobs.archive says last of a job, whoever reads it."""
        values = [one.value for one in self.log.records(Topic.JOBS_ARCHIVE) if one.key == job_id.encode()]
        return ArchivedJob.read(job_id, values[-1]) if values else None

    async def archived(self, *jobs: StoredJob) -> None:
        """Return once jobs.archive names them all."""
        await eventually(lambda: all(self.line(job.id) is not None for job in jobs))

    def files(self) -> list[Path]:
        """What lies in the archive."""
        return sorted((self.folder / "blobs").glob("archive/*/*/*"))


async def eventually(holds: Callable[[], bool], turn: Callable[[], Awaitable[Any]] = lambda: asyncio.sleep(0)) -> None:
    """Return once something holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not holds():
            await turn()
