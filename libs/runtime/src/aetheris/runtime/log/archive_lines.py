"""The lines of jobs.archive in memory, in some 90 bytes a job: which bundle holds the records of a sealed job."""

from aetheris.protocol.messages.commands import ArchivedJob
from aetheris.runtime.log.job_lines import JobLines, Rows

_DIGEST_BYTES = 32


class ArchiveLines(JobLines):
    """By job_id; what was put in as JSON comes out for `archived_job`. What is no such line says nothing."""

    def __setitem__(self, job_id: str, value: bytes) -> None:
        line = ArchivedJob.read(job_id, value)
        if line is not None:
            said = f"{line.until} {line.month} {line.tenant}".encode(errors="replace")
            self.keep(job_id, bytes.fromhex(line.sha256) + said)


def archived_job(rows: Rows, job_id: str) -> ArchivedJob | None:
    """What jobs.archive says of a job; None where it is not archived."""
    value = rows(job_id)
    if value is None:
        return None
    until, month, tenant = value[_DIGEST_BYTES:].decode().split(" ", 2)
    sha256 = value[:_DIGEST_BYTES].hex()
    return ArchivedJob(job_id=job_id, tenant=tenant, month=month, sha256=sha256, until=int(until))
