"""What is written of a sealed job: the rows of what its seal covers, if that is what was sealed."""

import hashlib
from collections.abc import Sequence

from aetheris.archiver.core.sealed_jobs import SealedJob
from aetheris.proofs.amendments import amends
from aetheris.proofs.records import body_of
from aetheris.protocol.base.record_tree import tree_over
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import since_creation
from aetheris.protocol.fold.sealed_part import as_sealed
from aetheris.views.query_rows import NoJob, QueryRows, query_rows, time_of

_SEALED = b"io.aetheris.job_sealed.v1"


class NotAsSealed(ValueError):
    """The records of a job are not those that its seal covers; `code` says how."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def judged_rows(sealed: SealedJob, records: Sequence[Record], *, payloads: bool) -> QueryRows:
    """The rows of the records that the seal covers; of one that amends another, with the late facts among them.

    What lies behind them says nothing.

    Raises:
        NotAsSealed: they are others, fewer, another job's, or were sealed at no time.
    """
    counted = list(since_creation(records))[: sealed.event_count]
    if len(counted) < sealed.event_count or not counted:
        raise NotAsSealed("records_missing")
    if tree_over(counted).hex() != sealed.tree:
        raise NotAsSealed("other_than_sealed")
    sealed_at, amended_at = sealed.sealed_at, None
    if sealed.amends is not None:
        sealed_at, amended_at = _first_sealed_at(sealed.amends, counted), sealed.sealed_at
    if time_of(sealed_at) is None:
        raise NotAsSealed("seal_time")
    try:
        found = query_rows(
            as_sealed(counted) if amended_at is not None else counted,
            sealed_at=sealed_at,
            payloads=payloads,
            amendment=sealed.amendment,
            amended_at=amended_at,
        )
    except NoJob:
        raise NotAsSealed("no_creation") from None
    if found.jobs[0]["job_id"] != sealed.job_id:
        raise NotAsSealed("other_job")
    return found


def _first_sealed_at(named: str, records: Sequence[Record]) -> str:
    """When the job was sealed first: by the seals among its records, each of which names the one that it amends.

    Raises:
        NotAsSealed: one of them is not there.
    """
    seals = {
        hashlib.sha256(one.value).hexdigest(): body_of(one.value) or {}
        for one in records
        if one.header("ce_type") == _SEALED
    }
    while (seal := seals.pop(named, None)) is not None:
        before = amends(seal)
        if before is None:
            return str(seal.get("sealed_at"))
        named = before
    raise NotAsSealed("seal_missing")
