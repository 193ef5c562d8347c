"""Verify a job's raw history (docs/verification.md)."""

from collections.abc import Iterable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from aetheris.proofs.audit import Audit
from aetheris.proofs.execution import LoadBlob
from aetheris.proofs.findings import Report
from aetheris.proofs.records import RawRecord


def verify(
    records: Iterable[RawRecord],
    *,
    public_keys: Iterable[Ed25519PublicKey] = (),
    load_blob: LoadBlob | None = None,
) -> Report:
    """The report on all records of one job, in log order.

    `public_keys` are those whose seals are taken; a seal by any other is a violation.
    `load_blob` gives the bytes of a result kept outside the log, by their hex SHA-256.
    """
    audit = Audit()
    for record in records:
        audit.add(record)
    return audit.report(public_keys=public_keys, load_blob=load_blob)


__all__ = ["Report", "verify"]
