"""A job's records and its lines in the log of seals, from Kafka itself: no service is asked (docs/verification.md)."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aetheris.cli.console import CommandError, Exit
from aetheris.cli.large import store
from aetheris.cli.reachable_log import reachable
from aetheris.proofs import RawRecord
from aetheris.proofs.claims import AGAIN_S, SEAL_WITHIN_S, Claim, lacks_seal, named_job, read_claim
from aetheris.proofs.trust import SEAL, TrustedKey, keyring
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import ArchivedJob
from aetheris.runtime.blobs.archive import JobArchive
from aetheris.runtime.log.archive_lines import ArchiveLines
from aetheris.runtime.log.interface import ArchiveUnusable, Log
from aetheris.runtime.log.job_lines import read_line
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.replay import replay

SEALS = (Topic.JOBS_SEALS, 0)


@dataclass
class JobRecords:
    """Records of one job; `claims`: what trusted keys had signed of it before; `seals`: the log's lines by now."""

    records: list[RawRecord] = field(default_factory=list[RawRecord])
    claims: list[Claim] = field(default_factory=list[Claim])
    seals: set[bytes] = field(default_factory=set[bytes])


async def read_log(bootstrap: str, job_id: str, keys: Sequence[TrustedKey], data: Path | None = None) -> JobRecords:
    """Read the job's whole partition and the log of seals, from their first records.

    What the partition has let go of is read from the archive in the store of the folder `data`, where that is known.

    Raises:
        CommandError: no broker answers, or the archive is no good.
    """
    found, trusted = JobRecords(), keyring(keys, SEAL)
    async with reachable(bootstrap, within_s=None) as log:
        # What is sealed by now lies in the stream as it ends after that; its own seal was logged before.
        sealed = (await log.end_offsets([SEALS]))[SEALS]
        async for record in everything(log, *SEALS, sealed):
            if named_job(record.value) != job_id:
                continue
            found.seals.add(record.value)
            claim = read_claim(record.offset, record.value, trusted)
            if claim is not None:
                found.claims.append(claim)
        number = await _lies_in(log, job_id)
        if data is not None:
            lines = {job_id: line} if (line := (await archived(log, number)).get(job_id)) is not None else {}
            async for _, records in gone(log, number, lines, data):
                found.records += records
        at = await _take_stream(log, job_id, number, found, 0)
        waited_s = 0.0
        while lacks_seal(found.records, found.claims) and waited_s < SEAL_WITHIN_S:
            await asyncio.sleep(AGAIN_S)
            waited_s += AGAIN_S
            at = await _take_stream(log, job_id, number, found, at)
        async for record in everything(log, *SEALS, begin=sealed):
            found.seals.add(record.value)
    return found


async def _lies_in(log: Log, job_id: str) -> int:
    """The job's partition: the one that its id names, but of an installation that was given more."""
    first = await log.partitions(Topic.JOBS_INDEX)
    named = partition_of(job_id, first)
    if await log.partitions(Topic.JOBS_EVENTS) == first:
        return named
    line: bytes | None = None
    async for record in everything(log, Topic.JOBS_INDEX, named):
        if record.key == job_id.encode():
            line = record.value
    try:
        return named if not line else read_line(line).lies_in(job_id, first)
    except ValueError:
        return named


async def _take_stream(log: Log, job_id: str, number: int, found: JobRecords, begin: int) -> int:
    """Add the job's records from `begin` on; where the partition ends now."""
    place = (Topic.JOBS_EVENTS, number)
    end = (await log.end_offsets([place]))[place]
    async for record in everything(log, Topic.JOBS_EVENTS, number, end, begin):
        if record.key == job_id.encode():
            found.records.append(raw(record))
    return end


async def archived(log: Log, number: int) -> dict[str, bytes]:
    """The last line of each archived job of a partition: job → line."""
    found: dict[str, bytes] = {}
    async for record in everything(log, Topic.JOBS_ARCHIVE, number):
        job_id = (record.key or b"").decode(errors="replace")
        if not record.value:
            found.pop(job_id, None)
        elif ArchivedJob.read(job_id, record.value) is not None:  # what is no line says nothing, as to services
            found[job_id] = record.value
    return found


async def gone(
    log: Log, number: int, lines: Mapping[str, bytes], data: Path
) -> AsyncIterator[tuple[str, list[RawRecord]]]:
    """Of each of these archived jobs the records that its partition has let go of.

    Raises:
        CommandError: a bundle is missing, or no good.
    """
    place = (Topic.JOBS_EVENTS, number)
    begin = (await log.beginning_offsets([place]))[place]
    if begin == 0:
        return
    rows = ArchiveLines()
    for job_id, line in lines.items():
        rows[job_id] = line
        try:
            records = await JobArchive(store(data), rows.get).records(job_id, number)
        except ArchiveUnusable as error:
            missing = Exit.UNREACHABLE if error.code == "blobs_unreachable" else Exit.FAILED
            raise CommandError(missing, error.code, str(error)) from None
        yield job_id, [raw(record) for record in records if record.offset < begin]


async def everything(
    log: Log, topic: Topic, number: int, until: int | None = None, begin: int = 0
) -> AsyncIterator[Record]:
    """A partition's records, from `begin`, or the first that it has, to `until`, or to the end that it has now."""
    place = (topic, number)
    begin = max(begin, (await log.beginning_offsets([place]))[place])
    end = (await log.end_offsets([place]))[place] if until is None else until
    async for records in replay(log, place, begin, end):
        for record in records:
            if record.offset < end:
                yield record


def raw(record: Record) -> RawRecord:
    """A record as the proofs take it."""
    return RawRecord(record.offset, record.key, record.headers, record.value)
