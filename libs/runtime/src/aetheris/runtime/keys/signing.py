"""Signing with Ed25519: what `aetheris.protocol.base.signing` leaves to whoever has keys."""

from collections.abc import Sequence
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.protocol.base import signing
from aetheris.protocol.base.signing import Certificate, RecordSignature, SignedPlace


class CertificateEnded(Exception):
    """The certificate is over, or has not begun: nothing is signed with its key."""


class Signer:
    """A service's key: signs many records at once, and nothing outside of its certificate's time."""

    def __init__(self, private_key: Ed25519PrivateKey, certificate: Certificate) -> None:
        self._private_key = private_key
        self.certificate = certificate
        self._not_before = datetime.fromisoformat(certificate.not_before)
        self._not_after = datetime.fromisoformat(certificate.not_after)

    def sign(self, records: Sequence[tuple[SignedPlace, bytes]], now: datetime) -> list[bytes]:
        """The values of records from their payloads (JSON objects), under one signature; `now` has an offset.

        Raises:
            CertificateEnded.
            ValueError: there is no record.
        """
        if not self._not_before <= now <= self._not_after:
            raise CertificateEnded(f"the certificate of {self.certificate.service} is not in force")
        leaves = [signing.leaf(signing.statement(place, payload)) for place, payload in records]
        root, paths = signing.batch(leaves)
        value, key_id = self._private_key.sign(signing.batch_message(root)), self.certificate.key_id
        return [
            signing.signed_value(payload, RecordSignature(key_id, value, index, len(records), path))
            for index, ((_, payload), path) in enumerate(zip(records, paths, strict=True))
        ]


def raw_public_key(private_key: Ed25519PrivateKey) -> bytes:
    """The 32 bytes of its public key."""
    return private_key.public_key().public_bytes_raw()
