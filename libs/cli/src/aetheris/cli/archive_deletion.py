"""What jobs.events may let go of: records that lie below every mark, and byte for byte in bundles that hold.

Nobody is believed: each record that would be deleted is looked for in the bundle that its job's line names.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aetheris.cli.fromlog import everything, raw
from aetheris.cli.large import store
from aetheris.cli.reachable_log import reachable
from aetheris.proofs import RawRecord, bundle
from aetheris.proofs.evidence import BadEvidence, violations_at_first
from aetheris.proofs.trust import TrustedKey
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.blobs.archive import JobArchive
from aetheris.runtime.blobs.store import BlobError, Blobs
from aetheris.runtime.kafka import admin
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.log.archive_lines import ArchiveLines
from aetheris.runtime.log.interface import Log
from aetheris.runtime.log.job_lines import JobLines
from aetheris.runtime.log.table import Table
from aetheris.runtime.process.settings import RuntimeSettings, load

SERVICES = ("aetheris.planner", "aetheris.ledger", "aetheris.tool_executor", "aetheris.verifier")
"""The groups that must have a mark in a partition before anything of it is deleted."""
KEPT = 100
"""Bundles that are held at a time: a job's records lie close together."""

_BIRTH = b"io.aetheris.job_created.v1"

Marks = Mapping[str, Mapping[int, int]]
"""Group → partition of jobs.events → the offset that it reads from when it starts."""


@dataclass(frozen=True, slots=True)
class PartitionDeletion:
    """Of a partition of jobs.events: what lies from `begin` up to `until` is not needed; `held_by`: why no more."""

    partition: int
    begin: int
    until: int
    end: int
    held_by: str

    def to_json(self) -> dict[str, Any]:
        """As a command prints it."""
        return {name: getattr(self, name) for name in ("partition", "begin", "until", "end", "held_by")}


def floor(marks: Marks, partition: int, end: int) -> tuple[int, str]:
    """(up to where nobody needs a partition, who needs what comes then)."""
    for group in SERVICES:
        if partition not in marks.get(group, {}):
            return 0, f"{group} has no mark there"
    needed = {group: of[partition] for group, of in marks.items() if partition in of}
    group = min(needed, key=lambda name: needed[name])
    return (needed[group], f"{group} reads from there") if needed[group] < end else (end, "the log ends there")


class ArchivedRecords:
    """Says of records whether the bundle of their job has them."""

    def __init__(self, archive: JobArchive, index: Table, blobs: Blobs, keys: Sequence[TrustedKey]) -> None:
        self._archive = archive
        self._index = index
        self._blobs = blobs
        self._keys = keys
        self._open: OrderedDict[str, Mapping[int, RawRecord] | str] = OrderedDict()

    def stands_against(self, record: Record) -> str | None:
        """Why a record may not go; None where it may."""
        job_id = (record.key or b"").decode(errors="replace")
        if self._archive.line(job_id) is None:
            if self._index.get(job_id) is None and record.header("ce_type") != _BIRTH:
                return None  # no job's: a barrier, or what nobody takes for anything
            return f"job {job_id} is not archived"
        held = self._held(job_id)
        if isinstance(held, str):
            return held
        if record.offset < min(held, default=0):
            return None  # before the creation that is sealed: a copy of it, or nobody's
        found = held.get(record.offset)
        return None if found == raw(record) else f"the bundle of job {job_id} lacks the record at {record.offset}"

    def _held(self, job_id: str) -> Mapping[int, RawRecord] | str:
        """A job's records by their offsets, of a bundle that proves them; else what is wrong with it."""
        held = self._open.pop(job_id, None)
        if held is None:
            try:
                held = {record.offset: record for record in self._proved(job_id)}
            except (BlobError, BadEvidence) as error:
                code = error.rule if isinstance(error, BadEvidence) else error.code
                held = f"the bundle of job {job_id} is no good: {code}"
        self._open[job_id] = held
        if len(self._open) > KEPT:
            self._open.popitem(last=False)
        return held

    def _proved(self, job_id: str) -> Iterator[RawRecord]:
        line = self._archive.line(job_id)
        if line is None:
            raise BadEvidence("not_archived", "no line names it")
        data = self._blobs.read_at(line.path, line.sha256)
        for broken in violations_at_first(bundle.judge(data, self._keys)):
            raise BadEvidence(broken["rule"], broken["message"])
        evidence = bundle.contents(data, self._keys)
        if evidence.job_id != job_id:
            raise BadEvidence("other_job", "it is of another job")
        yield from evidence.records


async def delete(bootstrap: str, data: Path, keys: Sequence[TrustedKey], *, dry: bool) -> list[PartitionDeletion]:
    """Delete what may go, of each partition; where `dry`, say only what that is.

    Raises:
        CommandError, LogUnreachable: no broker answers, or one refuses.
    """
    settings = load(RuntimeSettings)
    tls, prefix = tls_context(settings), settings.prefix
    async with reachable(bootstrap, within_s=None) as log:
        index, lines = Table(log, Topic.JOBS_INDEX, JobLines()), Table(log, Topic.JOBS_ARCHIVE, ArchiveLines())
        await asyncio.gather(index.load(), lines.load())
        blobs = store(data)
        archived = ArchivedRecords(JobArchive(blobs, lines.get), index, blobs, keys)
        numbers = range(await log.partitions(Topic.JOBS_EVENTS))
        marks = await admin.marks(bootstrap, Topic.JOBS_EVENTS, len(numbers), tls=tls, prefix=prefix)
        found = [await judged(log, number, marks, archived) for number in numbers]
        wanted = {(str(Topic.JOBS_EVENTS), one.partition): one.until for one in found if one.until > one.begin}
        if wanted and not dry:
            await admin.delete_below(bootstrap, wanted, tls=tls, prefix=prefix)
        return found


async def judged(log: Log, number: int, marks: Marks, archived: ArchivedRecords) -> PartitionDeletion:
    """What may go of a partition; reads it from its first record on, up to what may not."""
    place = (str(Topic.JOBS_EVENTS), number)
    begin, end = (await log.beginning_offsets([place]))[place], (await log.end_offsets([place]))[place]
    least, held_by = floor(marks, number, end)
    if least <= begin:
        return PartitionDeletion(number, begin, begin, end, held_by)
    async for record in everything(log, Topic.JOBS_EVENTS, number, least, begin):
        why = archived.stands_against(record)
        if why is not None:
            return PartitionDeletion(number, begin, max(begin, record.offset), end, why)
    return PartitionDeletion(number, begin, least, end, held_by)
