"""Reports that load large results from the blob store."""

from collections.abc import Sequence

from aetheris.proofs import Audit, ProofReport
from aetheris.proofs.execution import LoadBlob
from aetheris.proofs.trust import TrustedKey
from aetheris.runtime.blobs.store import BlobMissing, Blobs


def report_on(audit: Audit, keys: Sequence[TrustedKey], blobs: Blobs) -> ProofReport:
    """Judge what the audit has seen, as its seal will have it; blocks while it reads blobs."""
    return audit.report(keys=keys, load_blob=loader(blobs), to_end=True)


def loader(blobs: Blobs) -> LoadBlob:
    """A blob store as the proofs ask it; blocks. One that does not answer is no missing blob: BlobsUnreachable."""

    def load(sha256: str) -> bytes:
        try:
            return blobs.unchecked(sha256)
        except BlobMissing as error:
            raise LookupError(sha256) from error

    return load
