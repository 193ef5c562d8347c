"""The rows of jobs that are not in Parquet: each one's raw stream from the gateway, judged as the archiver does."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from aetheris.cli import judgement, streamfile
from aetheris.cli.console import CommandError, Exit
from aetheris.proofs import RawRecord
from aetheris.proofs.sealed import sealed_count
from aetheris.proofs.sealed_prefix import taken, trusted_seals
from aetheris.proofs.trust import TrustedKey
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.sealed_part import as_sealed
from aetheris.sdk.client import Client, JobSummary
from aetheris.views.query_rows import NoJob, QueryRows, query_rows, time_of

_PAGE = 200


def live_rows(client: Client, archived: Collection[str], data: Path, most: int) -> QueryRows:
    """The rows of the caller's listed jobs, but for those in `archived`.

    Raises:
        ApiError: the gateway says no.
        CommandError: there are more than `most`.
    """
    wanted: list[JobSummary] = []
    for job in _listed(client):
        if job.job_id not in archived:
            wanted.append(job)
        if len(wanted) > most:
            more = f"more than {most} jobs are not in Parquet, and each is read by itself"
            rule = f"{more}: --live-limit takes more, --no-live none"
            raise CommandError(Exit.FAILED, "too_many_live", rule)
    keys, found = judgement.trusted_keys(None, data), QueryRows()
    for job in wanted:
        found.add(_rows_of(client, job, keys))
    return found


def _listed(client: Client) -> Iterator[JobSummary]:
    cursor: str | None = None
    while True:
        page = client.jobs(cursor=cursor, limit=_PAGE)
        yield from page.jobs
        cursor = page.cursor
        if cursor is None:
            return


def _rows_of(client: Client, job: JobSummary, keys: Sequence[TrustedKey]) -> QueryRows:
    stream = streamfile.of_answer(client.raw_stream(job.job_id))
    records = list(stream.raw())
    seals = trusted_seals(taken(records), keys or stream.keys)
    try:
        if not seals:
            return query_rows([_record(one) for one in records])
        counted, times = [_record(one) for one in records[: sealed_count(seals[-1])]], len(seals) - 1
        return query_rows(
            as_sealed(counted) if times else counted,
            sealed_at=seals[0].text("sealed_at"),
            amendment=times,
            amended_at=seals[-1].text("sealed_at") if times else None,
        )
    except NoJob:  # taken, and not in the log yet
        return QueryRows([_listed_row(job)])


def _listed_row(job: JobSummary) -> dict[str, object]:
    named = {"job_id": job.job_id, "tenant": job.tenant, "status": job.status, "submitted_by": job.submitted_by}
    return {**named, "created_at": time_of(job.created_at), "amendment": 0}


def _record(raw: RawRecord) -> Record:
    return Record(Topic.JOBS_EVENTS, 0, raw.offset, 0, raw.key, raw.headers, raw.value)
