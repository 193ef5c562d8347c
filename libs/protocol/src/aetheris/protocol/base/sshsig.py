"""SSH signatures, as `ssh-keygen -Y sign` makes them (SSHSIG, version 1): read and verified, a pure function of bytes.

Keys are Ed25519, in a file or on a security key that was touched. OpenSSH's PROTOCOL.sshsig and PROTOCOL.u2f say
each byte.
"""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass

from aetheris.protocol.base.ed25519 import verify

MAX_ARMORED = 4_096
"""Characters; one by Ed25519 has some 300."""
PLAIN, SECURITY_KEY = "ssh-ed25519", "sk-ssh-ed25519@openssh.com"

_MAGIC = b"SSHSIG"
_ARMORED = re.compile(
    r"-----BEGIN SSH SIGNATURE-----\r?\n((?:[A-Za-z0-9+/=]{1,76}\r?\n)+)-----END SSH SIGNATURE-----(?:\r?\n)?"
)
_HASHES = {b"sha256": hashlib.sha256, b"sha512": hashlib.sha512}
_TOUCHED = 1
_KEY_BYTES, _SIGNATURE_BYTES, _COUNTER_BYTES = 32, 64, 5


class SshSignatureInvalid(ValueError):
    """It is none that counts; the message says why, and quotes nothing."""


@dataclass(frozen=True, slots=True)
class SshKey:
    """A public key; of a security key with what it is for."""

    raw: bytes
    application: bytes | None = None

    @property
    def blob(self) -> bytes:
        """As SSH writes it, and as its fingerprint is made of."""
        if self.application is None:
            return _string(PLAIN.encode()) + _string(self.raw)
        return _string(SECURITY_KEY.encode()) + _string(self.raw) + _string(self.application)

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` shows it: SHA256:…"""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class SshSignature:
    """What a signature says; whether it holds is for `holds`. `details`: a security key's flags and counter."""

    key: SshKey
    namespace: str
    hash_name: bytes
    value: bytes
    details: bytes = b""

    def holds(self, message: bytes) -> bool:
        """Whether its key signed this message in its namespace."""
        digest = _HASHES[self.hash_name](message).digest()
        named = (self.namespace.encode(), b"", self.hash_name, digest)
        signed = _MAGIC + b"".join(map(_string, named))
        if self.key.application is not None:
            application, body = (hashlib.sha256(part).digest() for part in (self.key.application, signed))
            signed = application + self.details + body
        return verify(self.key.raw, self.value, signed)


def read_signature(armored: str) -> SshSignature:
    """A signature in its armor.

    Raises:
        SshSignatureInvalid: it is not of this form, or not by an Ed25519 key, or nobody touched the security key.
    """
    found = _ARMORED.fullmatch(armored) if len(armored) <= MAX_ARMORED else None
    if found is None:
        raise SshSignatureInvalid("it is not the armored text that ssh-keygen -Y sign writes")
    blob = _Cursor(unbase64("".join(found[1].split())))
    if blob.take(len(_MAGIC)) != _MAGIC or blob.number() != 1:
        raise SshSignatureInvalid("it is not of version 1")
    key, namespace, reserved, hash_name, signed = (blob.string() for _ in range(5))
    blob.end()
    if reserved:
        raise SshSignatureInvalid("its reserved field is not empty")
    if hash_name not in _HASHES:
        raise SshSignatureInvalid("its hash is neither sha512 nor sha256")
    public = read_key(key)
    value, details = _value(signed, public)
    try:
        return SshSignature(public, namespace.decode(), hash_name, value, details)
    except UnicodeDecodeError:
        raise SshSignatureInvalid("its namespace is no text") from None


def read_key(blob: bytes) -> SshKey:
    """A public key, as SSH writes it.

    Raises:
        SshSignatureInvalid: it is no Ed25519 key.
    """
    cursor = _Cursor(blob)
    kind = cursor.string()
    if kind not in (PLAIN.encode(), SECURITY_KEY.encode()):
        raise SshSignatureInvalid("its key is not of type ssh-ed25519 or sk-ssh-ed25519@openssh.com")
    raw = cursor.string()
    application = cursor.string() if kind == SECURITY_KEY.encode() else None
    cursor.end()
    if len(raw) != _KEY_BYTES:
        raise SshSignatureInvalid("its key is not of 32 bytes")
    return SshKey(raw, application)


def _value(signed: bytes, key: SshKey) -> tuple[bytes, bytes]:
    cursor = _Cursor(signed)
    kind, value = cursor.string(), cursor.string()
    details = cursor.take(_COUNTER_BYTES) if key.application is not None else b""
    cursor.end()
    named = PLAIN if key.application is None else SECURITY_KEY
    if kind != named.encode() or len(value) != _SIGNATURE_BYTES:
        raise SshSignatureInvalid("it is not of its key's type")
    if details and not details[0] & _TOUCHED:
        raise SshSignatureInvalid("nobody touched the security key")
    return value, details


class _Cursor:
    """SSH's wire format, read to its last byte."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) != count:
            raise SshSignatureInvalid("it is cut off")
        self._at += count
        return found

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def string(self) -> bytes:
        return self.take(self.number())

    def end(self) -> None:
        if self._at != len(self._data):
            raise SshSignatureInvalid("it has more behind its end")


def unbase64(text: str) -> bytes:
    """Base64 that is written as it must be.

    Raises:
        SshSignatureInvalid: it is not.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SshSignatureInvalid("it is no base64") from None
    if base64.b64encode(data).decode() != text:
        raise SshSignatureInvalid("it is no base64")
    return data


def _string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
