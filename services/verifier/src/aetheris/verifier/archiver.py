"""Puts the bundles of jobs that were sealed some time ago into the archive, one at a time (docs/archive.md).

It goes through jobs.index in its order, which is that of the seals, and stops at the first line that is too young.
What is archived it sees in jobs.archive, so whoever comes next goes on where this one was killed: a bundle that no line
names is one that nobody asks for.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from math import inf

import structlog

from aetheris.proofs.evidence import BadEvidence
from aetheris.protocol.base.ids import derived
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import ArchivedJob, JobBehind, JobIndexEntry
from aetheris.protocol.messages.envelope import Envelope, Undecodable, decode_message, draft
from aetheris.runtime.blobs.archive import JobArchive
from aetheris.runtime.blobs.store import BlobCorrupt, BlobMissing, BlobName, BlobsUnreachable
from aetheris.runtime.log.interface import LogError, LogUnreachable
from aetheris.runtime.log.job_lines import line_of
from aetheris.runtime.log.replay import replay
from aetheris.runtime.process.runtime import Runtime
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.runtime.worker.loop import PartitionWorker
from aetheris.verifier.proofs import Proofs, StillReading, UnknownJob
from aetheris.verifier.seallog import NotLogged, SealLogForked
from aetheris.verifier.token_key import KeyAway

SOURCE = "aetheris/verifier"
LOOK_S = 60.0
"""The longest pause between two looks; a new line in jobs.index is seen at once."""
TRIES = 4
"""So often a job that can't be read is tried before those behind it have their turn."""
AGAIN_S = 15.0
"""After which what could not be asked for is asked again."""
REFUSED_AGAIN_S = 3600.0
"""After which jobs that can't be archived are looked at again."""
RENEW_S = 3600.0
"""An archived job gets a new bundle for what comes behind its seal: after the first one not before this, ..."""
LONGEST_RENEW_S = 7 * 86_400.0
"""... then each time not before twice as long, at most so: anybody may write there, and no bundle is deleted.

What is sealed, an amendment, does not wait: the auditor makes these ever more seldom, an hour apart at most.
"""
REST = 3
"""So many times as long as it took to archive a job nothing is archived: judging and sealing come first."""

_PASSES = (LogUnreachable, StillReading, BlobsUnreachable, KeyAway, SealLogForked)
"""What says nothing of the job that was being archived."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Renewed:
    """An archived job that has got a new bundle, and gets none before `due_s`, but for what is sealed since.

    `covers`: how many records the last bundle's seal is over; `waits`: whether a new one is wanted.
    """

    due_s: float
    pause_s: float
    covers: int
    waits: bool = False


class Archiver:
    """Of the partitions that this process audits."""

    def __init__(
        self, parts: Runtime, worker: PartitionWorker, archive: JobArchive, proofs: Proofs, after: timedelta
    ) -> None:
        self._parts = parts
        self._worker = worker
        self._archive = archive
        self._proofs = proofs
        self._after_ms = round(after.total_seconds() * 1000)
        self._positions: dict[int, int] = {}
        """Up to where each partition of jobs.index was gone through."""
        self._due_ms: int | None = None
        """Since when the job that is being archived should be."""
        self.waits_s = 0.0
        """For how long nothing more is due, as of the last look."""
        self.refused: dict[str, str] = {}
        """Jobs that can't be archived, and why: they break a rule, so they are few."""
        self._renewed: dict[str, _Renewed] = {}
        self._news = asyncio.Event()

    def show(self, metrics: Metrics) -> None:
        """Let them say how late it is, and what it can't archive."""
        metrics.watch(Metric.ARCHIVE_LATE, lambda: self.late_s)
        metrics.watch(Metric.ARCHIVE_REFUSED, lambda: len(self.refused))

    @property
    def late_s(self) -> int:
        """For how long the job that comes next should have been archived; 0 where none is due."""
        return 0 if self._due_ms is None else max(0, self._now_ms() - self._due_ms) // 1000

    async def run(self) -> None:
        """Archive what is due, until cancelled."""
        self._worker.tables[Topic.JOBS_INDEX].on_change(lambda _key, _value: self._news.set())
        again_s = self._parts.clock.monotonic() + REFUSED_AGAIN_S
        while True:
            self._news.clear()
            pause_s = LOOK_S
            first = self._worker.tables[Topic.JOBS_INDEX].partitions
            for number in self._worker.numbers:
                if number < first:  # jobs.index has no more, however many jobs.events has by now
                    pause_s = min(pause_s, await self._go_through(number))
            pause_s = min(pause_s, await self._renew())
            if self._parts.clock.monotonic() >= again_s:
                again_s += REFUSED_AGAIN_S
                for job_id in tuple(self.refused):
                    await self._take(job_id)
            self.waits_s = pause_s
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._news.wait()

    async def _go_through(self, number: int) -> float:
        """Archive what a partition of jobs.index says is due; after how many seconds more of it is, at most."""
        while True:
            try:
                return await self._go_on(number)
            except LogUnreachable:
                await self._parts.clock.sleep(AGAIN_S)

    async def _go_on(self, number: int) -> float:
        place = (str(Topic.JOBS_INDEX), number)
        begin = (await self._parts.log.beginning_offsets([place]))[place]
        end = (await self._parts.log.end_offsets([place]))[place]
        await self._worker.tables[Topic.JOBS_INDEX].caught_up()  # it is asked about what is read here
        async for records in replay(self._parts.log, place, max(begin, self._positions.get(number, 0)), end):
            for record in records:
                job_id = _sealed_job(record)
                if job_id is not None:
                    left_ms = record.timestamp_ms + self._after_ms - self._now_ms()
                    if 0 < left_ms <= self._after_ms:  # who says that he wrote it in the future holds nobody up
                        return left_ms / 1000
                    self._due_ms = record.timestamp_ms + self._after_ms
                    await self._take(job_id)
                    self._due_ms = None
                self._positions[number] = record.offset + 1
        return LOOK_S

    async def _take(self, job_id: str) -> None:
        """Archive a job, if it is to be, and can be."""
        clock, tries = self._parts.clock, 0
        while True:
            began_s = clock.monotonic()
            try:
                if not self._is_archived(job_id) and await self._may_renew(job_id):
                    is_first = self._archive.line(job_id) is None
                    covers = await self._put(job_id)
                    if not is_first:
                        self._has_renewed(job_id, covers)
                    await clock.sleep(REST * (clock.monotonic() - began_s))
                self.refused.pop(job_id, None)
            except _PASSES as error:
                tries += 1
                if tries >= TRIES and isinstance(error, LogUnreachable):
                    self._refuse(job_id, error.code, str(error))
                    return
                _log.warning("the archive waits", job_id=job_id, code=error.code, reason=str(error))
                await clock.sleep(AGAIN_S)
                continue
            except (BadEvidence, NotLogged, UnknownJob, BlobMissing, BlobCorrupt, LogError) as error:
                self._refuse(job_id, error.rule if isinstance(error, BadEvidence) else error.code, str(error))
            except Exception as error:  # noqa: BLE001 - it concerns this job alone
                self._refuse(job_id, "unjudged", type(error).__name__)
            return

    async def _renew(self) -> float:
        """Archive anew what has waited for it; after how many seconds more does, at most."""
        for job_id, renewed in tuple(self._renewed.items()):
            if self._parts.clock.monotonic() < renewed.due_s:
                continue
            if renewed.waits:
                renewed.waits = False
                await self._take(job_id)
            elif self._parts.clock.monotonic() >= renewed.due_s + LONGEST_RENEW_S:
                del self._renewed[job_id]  # it was left in peace
        waiting = (one.due_s for one in self._renewed.values() if one.waits)
        return max(0.0, min(waiting, default=inf) - self._parts.clock.monotonic())

    async def _may_renew(self, job_id: str) -> bool:
        """Whether it is time for another bundle of a job; else that is seen to when it is.

        What amends its seal is proved, and comes seldom: it does not wait for what anybody may have written there.
        """
        renewed = self._renewed.get(job_id)
        if renewed is None or self._parts.clock.monotonic() >= renewed.due_s:
            return True
        if await self._proofs.covered(job_id) > renewed.covers:
            return True
        renewed.waits = True
        return False

    def _has_renewed(self, job_id: str, covers: int) -> None:
        before, now_s = self._renewed.get(job_id), self._parts.clock.monotonic()
        if before is not None and now_s < before.due_s:
            before.covers, before.waits = covers, False
            return
        pause_s = RENEW_S if before is None else min(2 * before.pause_s, LONGEST_RENEW_S)
        self._renewed[job_id] = _Renewed(now_s + pause_s, pause_s, covers)

    def _is_archived(self, job_id: str) -> bool:
        """Whether a bundle is there that has all that is known to lie in the log of a job; also of one without seal."""
        known = line_of(self._worker.tables[Topic.JOBS_INDEX].get, job_id)
        if known is None or not known.stretches:
            return True
        line = self._archive.line(job_id)
        return line is not None and line.until >= max(end for _, end in (*known.stretches, *known.behind))

    async def _put(self, job_id: str) -> int:
        """Its bundle into the store, read back and checked; then its line. How many records its seal covers."""
        packed = await self._proofs.packed(job_id)
        line = ArchivedJob(
            job_id=job_id,
            tenant=packed.tenant,
            month=packed.sealed_at[:7],
            sha256=BlobName.of(packed.bundle).sha256,
            until=packed.until,
        )
        await self._parts.blobs.put_at(line.path, packed.bundle)
        await self._proofs.check(await asyncio.to_thread(self._parts.blobs.read_at, line.path, line.sha256))
        said = draft(
            Topic.JOBS_ARCHIVE,
            line,
            key=line.key,
            id=derived("archived", job_id, line.sha256),
            source=SOURCE,
            time=self._parts.clock.now().isoformat(),
            partition=self._lies_in(job_id),
        )
        await self._parts.appender.append([(said,)])
        await self._worker.tables[Topic.JOBS_ARCHIVE].caught_up()
        _log.info("archived", job_id=job_id, path=line.path, bytes=len(packed.bundle))
        return packed.covers

    def _lies_in(self, job_id: str) -> int | None:
        """The job's partition, in which the line of its bundle lies, too."""
        index = self._worker.tables[Topic.JOBS_INDEX]
        known = line_of(index.get, job_id)
        return None if known is None else known.lies_in(job_id, index.partitions)

    def _refuse(self, job_id: str, code: str, reason: str) -> None:
        if self.refused.get(job_id) != code:
            _log.error("a job can't be archived", job_id=job_id, code=code, reason=reason)
        self.refused[job_id] = code

    def _now_ms(self) -> int:
        return round(self._parts.clock.now().timestamp() * 1000)


def _sealed_job(record: Record) -> str | None:
    """The job that is sealed, as a record of jobs.index has it, or of which something lies behind its seal."""
    try:
        found = decode_message(record) if record.value else None
    except Undecodable:
        return None
    if not isinstance(found, Envelope):
        return None
    if isinstance(found.body, JobIndexEntry):
        return found.body.job_id if found.body.stretches else None
    return found.body.of_job if isinstance(found.body, JobBehind) else None
