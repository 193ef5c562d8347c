"""What the verifier decides: which jobs to audit, when one is to be sealed, what a seal says (pure)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aetheris.proofs import Audit, RawRecord, Report
from aetheris.proofs.seals import seal_payload
from aetheris.protocol.events import JobCreated, JobSealed
from aetheris.protocol.records import Record
from aetheris.protocol.sealed import SealedNames

Sign = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Adds key_id and signature to a seal's payload."""


@dataclass(slots=True)
class LiveJob:
    """A job under audit: born at `birth`, not sealed yet as far as the log says."""

    job_id: str
    birth: int
    tenant: str
    audit: Audit = field(default_factory=Audit)
    sealing: bool = False


class Partition:
    """The live jobs of one partition."""

    def __init__(self) -> None:
        self.jobs: dict[str, LiveJob] = {}
        self._forgotten = SealedNames()

    def evolve(self, record: Record, event_type: str) -> LiveJob | None:
        """Take the next record of the log; the job that it belongs to, if it is under audit.

        A job is known from its birth on; what is sealed is forgotten.
        """
        job_id = (record.key or b"").decode(errors="replace")
        job = self.jobs.get(job_id)
        if job is None:
            if event_type != JobCreated.event_type or job_id in self._forgotten:
                return None
            job = self.jobs[job_id] = LiveJob(job_id, record.offset, _tenant(record))
        job.audit.add(raw(record))
        if event_type == JobSealed.event_type:
            del self.jobs[job_id]
            self._forgotten.add(job_id)
        return job

    def to_seal(self) -> list[LiveJob]:
        """Jobs that have ended and are not being sealed yet."""
        return [job for job in self.jobs.values() if job.audit.ended and not job.sealing]

    def mark(self) -> int | None:
        """The birth of the oldest job that is not sealed."""
        return min((job.birth for job in self.jobs.values()), default=None)


def raw(record: Record) -> RawRecord:
    """A record as the proofs take it."""
    return RawRecord(record.offset, record.key, record.headers, record.value)


def sealed(job: LiveJob, report: Report, sign: Sign) -> JobSealed:
    """The seal over everything that the log holds of the job so far."""
    signed = sign(
        seal_payload(
            tenant=job.tenant,
            job_id=job.job_id,
            event_count=report.event_count,
            root=report.event_chain_root_hash,
            execution_hash=report.execution_hash,
            outcome_hash=report.outcome_hash,
        )
    )
    return JobSealed.model_validate(signed)


def _tenant(record: Record) -> str:
    try:
        return JobCreated.model_validate_json(record.value).tenant
    except ValueError:
        return ""
