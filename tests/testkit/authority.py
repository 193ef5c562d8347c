"""A certificate authority of a test: one CA, and whom it signs."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Identity:
    """PEM files, as Strimzi's secrets have them."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates into a folder; `ca` is its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("test-ca")
        builder = self._builder(self._key.public_key(), self._name)
        own = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.ca = folder / "ca.crt"
        self.ca.write_bytes(own.sign(self._key, SHA256()).public_bytes(Encoding.PEM))

    def sign(self, name: str) -> Identity:
        """A certificate for this common name, on 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        hosts = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        builder = self._builder(key.public_key(), _named(name)).add_extension(hosts, critical=False)
        identity = Identity(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        identity.certificate.write_bytes(builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
        identity.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return identity

    def _builder(self, key: ec.EllipticCurvePublicKey, subject: x509.Name) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
