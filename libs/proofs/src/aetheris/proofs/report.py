"""Verify a job's raw history (docs/verification.md)."""

from collections.abc import Iterable, Sequence

from aetheris.proofs.approver_signatures import TrustedSigner
from aetheris.proofs.audit import Audit
from aetheris.proofs.execution import LoadBlob
from aetheris.proofs.findings import ProofReport
from aetheris.proofs.records import RawRecord
from aetheris.proofs.trust import TrustedKey


def verify(
    records: Iterable[RawRecord],
    *,
    keys: Iterable[TrustedKey] = (),
    load_blob: LoadBlob | None = None,
    signers: Sequence[TrustedSigner] | None = None,
) -> ProofReport:
    """The report on all records of one job, in log order.

    `keys` are those whose seals are taken; a seal by any other is a violation.
    `load_blob` gives the bytes of a result kept outside the log, by their hex SHA-256.
    `signers` say whose keys sign for whom, where a rule asks approvers to sign.
    """
    audit = Audit()
    for record in records:
        audit.add(record)
    return audit.report(keys=keys, load_blob=load_blob, signers=signers)


__all__ = ["ProofReport", "verify"]
