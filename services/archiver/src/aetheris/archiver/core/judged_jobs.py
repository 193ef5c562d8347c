"""What is written of a sealed job: the rows of what its seal covers, if that is what was sealed."""

from collections.abc import Sequence

from aetheris.archiver.core.sealed_jobs import SealedJob
from aetheris.protocol.base.record_tree import tree_over
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import since_creation
from aetheris.views.query_rows import NoJob, QueryRows, query_rows, time_of


class NotAsSealed(ValueError):
    """The records of a job are not those that its seal covers; `code` says how."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def judged_rows(sealed: SealedJob, records: Sequence[Record], *, payloads: bool) -> QueryRows:
    """The rows of the records that the seal covers; what lies behind them says nothing.

    Raises:
        NotAsSealed: they are others, fewer, another job's, or were sealed at no time.
    """
    counted = list(since_creation(records))[: sealed.event_count]
    if len(counted) < sealed.event_count or not counted:
        raise NotAsSealed("records_missing")
    if tree_over(counted).hex() != sealed.tree:
        raise NotAsSealed("other_than_sealed")
    if time_of(sealed.sealed_at) is None:
        raise NotAsSealed("seal_time")
    try:
        found = query_rows(counted, sealed_at=sealed.sealed_at, payloads=payloads)
    except NoJob:
        raise NotAsSealed("no_creation") from None
    if found.jobs[0]["job_id"] != sealed.job_id:
        raise NotAsSealed("other_job")
    return found
