"""The archive: bundles of sealed jobs in the store of blobs, by the lines of jobs.archive (docs/archive.md)."""

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import ArchivedJob
from aetheris.runtime.blobs.store import BlobCorrupt, BlobMissing, Blobs, BlobsUnreachable
from aetheris.runtime.log.archive_lines import archived_job
from aetheris.runtime.log.interface import ArchiveUnusable
from aetheris.runtime.log.job_lines import Rows

if TYPE_CHECKING:
    from aetheris.proofs.records import RawRecord


class JobArchive:
    """Reads archived jobs as the log had them: what they are worth is judged as if they still lay there.

    A bundle counts with the bytes that its line names, so who writes to the store changes nothing. Neither line nor
    bundle is believed beyond that: what the records of a job are is said by its seal, and by who signed them.
    """

    def __init__(self, blobs: Blobs, rows: Rows) -> None:
        self._blobs = blobs
        self._rows = rows

    def line(self, job_id: str) -> ArchivedJob | None:
        """Which bundle holds a job; None where none is known to."""
        return archived_job(self._rows, job_id)

    async def records(self, job_id: str, partition: int) -> list[Record]:
        """As `log.history.Archive` has it."""
        line = self.line(job_id)
        if line is None:
            message = f"the log no longer has the beginning of job {job_id}, and jobs.archive names no bundle of it"
            raise ArchiveUnusable("not_archived", message)
        return await asyncio.to_thread(self._read, line, partition)

    def _read(self, line: ArchivedJob, partition: int) -> list[Record]:
        from aetheris.proofs.bundle import contents  # noqa: PLC0415  many never read one, and a start shall not wait
        from aetheris.proofs.evidence import BadEvidence  # noqa: PLC0415

        try:
            found = contents(self._blobs.read_at(line.path, line.sha256))
        except BlobMissing:
            raise ArchiveUnusable("archive_missing", f"the store of blobs has no {line.path}") from None
        except BlobsUnreachable as error:
            raise ArchiveUnusable(error.code, str(error)) from None
        except (BlobCorrupt, BadEvidence):
            raise ArchiveUnusable("archive_corrupt", f"{line.path} is not what was archived") from None
        if any(record.key != line.job_id.encode() for record in found.records):
            raise ArchiveUnusable("archive_corrupt", f"{line.path} is of another job")
        return [_record(record, partition) for record in found.records]


def _record(raw: "RawRecord", partition: int) -> Record:
    return Record(Topic.JOBS_EVENTS, partition, raw.offset, _milliseconds(raw), raw.key, raw.headers, raw.value)


def _milliseconds(raw: "RawRecord") -> int:
    """A bundle lacks the brokers' times: its writer's stands for it."""
    try:
        return round(datetime.fromisoformat(raw.header("ce_time").decode()).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
