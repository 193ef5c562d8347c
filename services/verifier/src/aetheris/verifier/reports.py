"""Reports that load large results from the blob store."""

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from aetheris.proofs import Audit, Report
from aetheris.streams.blobs import BlobCorrupt, BlobMissing, Blobs


def report_on(audit: Audit, keys: Sequence[Ed25519PublicKey], blobs: Blobs) -> Report:
    """Judge what the audit has seen; blocks while it reads blobs."""

    def load(sha256: str) -> bytes:
        try:
            return blobs.read(sha256)
        except (BlobMissing, BlobCorrupt) as error:
            raise LookupError(sha256) from error

    return audit.report(public_keys=keys, load_blob=load)
