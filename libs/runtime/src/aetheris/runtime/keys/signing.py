"""Signing with Ed25519: what `aetheris.protocol.base.signing` leaves to whoever has keys."""

from collections.abc import Callable, Sequence
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from aetheris.protocol.base import signing
from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.ed25519 import signature_of, signed_here
from aetheris.protocol.base.signing import Certificate, RecordSignature, SignedPlace
from aetheris.runtime.base.refusal import StartRefused

ToldOfSignature = Callable[[bytes, bytes, bytes], None]
"""Of (raw public key, signature, message), which need not be verified by who reads them back."""


class CertificateNotInForce(StartRefused):
    """Nothing is signed outside of the time of its key's certificate, and the process ends."""


class CertificateEnded(CertificateNotInForce):
    """It is over."""

    code = "certificate_ended"


class CertificateNotYet(CertificateNotInForce):
    """It has not begun: most often the clock is wrong, and is set right some time without this process."""

    code = "certificate_not_yet"
    passes = True


class SigningKeyRevoked(StartRefused):
    """The root has revoked the key: what is signed with it counts no more, and the process ends."""

    code = "key_revoked"


class LoadedKey:
    """A private key in the memory of this process; nothing shows it."""

    def __init__(self, private_key: Ed25519PrivateKey) -> None:
        self._public_key = private_key.public_key()
        self._seed, self._raw = private_key.private_bytes_raw(), self._public_key.public_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        """The signature of a message."""
        return signature_of(self._seed, self._raw, data)

    def public_key(self) -> Ed25519PublicKey:
        """What verifies it."""
        return self._public_key


class Signer:
    """A service's key: signs many records at once, and nothing outside of its certificate's time."""

    def __init__(
        self, private_key: Ed25519PrivateKey, certificate: Certificate, also_told: ToldOfSignature | None = None
    ) -> None:
        """`also_told`: who else of this process reads what it signs."""
        self._also_told = also_told
        self._private_key = LoadedKey(private_key)
        self.certificate = certificate
        self._public_key = raw_public_key(private_key)
        self.key_id = certificate.key_id
        self.certificate_json = canonical(certificate.to_json())
        self._not_before = datetime.fromisoformat(certificate.not_before)
        self._not_after = datetime.fromisoformat(certificate.not_after)

    def check(self, now: datetime) -> None:
        """Whether its certificate is in force; `now` has an offset.

        Raises:
            CertificateNotInForce: it is not.
        """
        held = self.certificate
        if now < self._not_before:
            raise CertificateNotYet(
                f"the certificate of this {held.service} is in force from {held.not_before}, "
                f"and the clock says {now.isoformat(timespec='seconds')}: "
                "set the clock right, or renew the certificate with `aetheris root certify`"
            )
        if now > self._not_after:
            raise CertificateEnded(
                f"the certificate of this {held.service} was in force from {held.not_before} to {held.not_after}: "
                "renew it with `aetheris root certify`"
            )

    def sign(self, records: Sequence[tuple[SignedPlace, bytes]], now: datetime) -> list[bytes]:
        """The values of records from their payloads (JSON objects), under one signature; `now` has an offset.

        Raises:
            CertificateNotInForce.
            ValueError: there is no record.
        """
        self.check(now)
        leaves = [signing.leaf(signing.statement(place, payload)) for place, payload in records]
        root, paths = signing.batch(leaves)
        message = signing.batch_message(root)
        value = self._private_key.sign(message)
        signed_here(self._public_key, value, message)
        if self._also_told is not None:
            self._also_told(self._public_key, value, message)
        return [
            signing.signed_value(payload, RecordSignature(self.key_id, value, index, len(records), path))
            for index, ((_, payload), path) in enumerate(zip(records, paths, strict=True))
        ]


def raw_public_key(private_key: Ed25519PrivateKey) -> bytes:
    """The 32 bytes of its public key."""
    return private_key.public_key().public_bytes_raw()
