"""Sealed jobs as they lie in a log, without the services that made them."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from aetheris.proofs import RawRecord, verify
from aetheris.proofs.seals import seal_payload, sign
from aetheris.protocol.base.stretches import Stretch
from tests.testkit.evidence import KEY, SALT, SEALED_AT
from tests.testkit.proof_histories import TENANT, clean, raw


@dataclass(frozen=True)
class StoredJob:
    """A sealed history, and what is left of it in the log."""

    id: str
    records: Sequence[RawRecord]
    stored: Sequence[RawRecord]

    @property
    def seal(self) -> bytes:
        return self.records[-1].value

    def lies_at(self, creation_offset: int) -> tuple[Stretch, ...]:
        """Where it lies, written in one go; nothing is said of a job that has no seal."""
        sealed = len(self.stored) == len(self.records)
        return ((creation_offset, creation_offset + len(self.stored)),) if sealed else ()


def stored_job(drop: int = 0) -> StoredJob:
    """The clean history under a name of its own, sealed, without the last `drop` records."""
    name = f"tail-{uuid.uuid4().hex[:12]}"
    records = list(clean(name).records)
    report = verify(records)
    payload = seal_payload(
        tenant=TENANT,
        job_id=name,
        event_count=len(records),
        root=report.event_chain_root_hash,
        tree=report.event_tree_root_hash,
        execution_hash=report.execution_hash,
        outcome_hash=report.outcome_hash,
        sealed_at=SEALED_AT,
        salt=SALT,
        calls=report.calls,
    )
    records.append(raw(0, "seal", "job_sealed", sign(payload, KEY), ce_subject=name))
    return StoredJob(name, records, records[: len(records) - drop])
