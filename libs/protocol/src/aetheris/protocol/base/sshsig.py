"""SSH signatures, as `ssh-keygen -Y sign` makes them (SSHSIG, version 1): read and verified, a pure function of bytes.

Keys are Ed25519, in a file or on a security key that was touched, or a passkey's, whose signature a browser made.
OpenSSH's PROTOCOL.sshsig and PROTOCOL.u2f say each byte.
"""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass

from aetheris.protocol.base.ed25519 import verify
from aetheris.protocol.base.passkeys import POINT_BYTES, Assertion, is_point, is_rp_id

MAX_ARMORED = 4_096
"""Characters; one by Ed25519 has some 300, one by a passkey 850."""
PLAIN, SECURITY_KEY = "ssh-ed25519", "sk-ssh-ed25519@openssh.com"
PASSKEY = "sk-ecdsa-sha2-nistp256@openssh.com"
ASSERTION = f"webauthn-{PASSKEY}"
"""The type of a passkey's signatures, which is not that of its key."""

_MAGIC, _VERSION = b"SSHSIG", (1).to_bytes(4, "big")
_LINE = 70
_ARMORED = re.compile(
    r"-----BEGIN SSH SIGNATURE-----\r?\n((?:[A-Za-z0-9+/=]{1,76}\r?\n)+)-----END SSH SIGNATURE-----(?:\r?\n)?"
)
_HASHES = {b"sha256": hashlib.sha256, b"sha512": hashlib.sha512}
_TOUCHED = 1
_CURVE = b"nistp256"
_KEY_BYTES, _SIGNATURE_BYTES, _COUNTER_BYTES, _LONGEST_NUMBER = 32, 64, 5, 33


class SshSignatureInvalid(ValueError):
    """It is none that counts; the message says why, and quotes nothing."""


@dataclass(frozen=True, slots=True)
class SshKey:
    """A public key; of a security key with what it is for, of a passkey with its RP id, the host that it is for."""

    raw: bytes
    application: bytes | None = None

    @property
    def is_passkey(self) -> bool:
        """Whether a browser signs with it."""
        return len(self.raw) == POINT_BYTES

    @property
    def kind(self) -> str:
        """SSH's name of its type."""
        if self.application is None:
            return PLAIN
        return PASSKEY if self.is_passkey else SECURITY_KEY

    @property
    def blob(self) -> bytes:
        """As SSH writes it, and as its fingerprint is made of."""
        curve = (_CURVE,) if self.is_passkey else ()
        application = () if self.application is None else (self.application,)
        return b"".join(map(_string, (self.kind.encode(), *curve, self.raw, *application)))

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
    value: bytes | Assertion
    details: bytes = b""

    def holds(self, message: bytes) -> bool:
        """Whether its key signed this message in its namespace."""
        signed = signed_bytes(self.namespace.encode(), self.hash_name, message)
        if isinstance(self.value, Assertion):
            return self.value.holds(self.key.raw, self.key.application or b"", signed)
        if self.key.application is not None:
            application, body = (hashlib.sha256(part).digest() for part in (self.key.application, signed))
            signed = application + self.details + body
        return verify(self.key.raw, self.value, signed)


def signed_bytes(namespace: bytes, hash_name: bytes, message: bytes) -> bytes:
    """What a key signs of a message; for a passkey, its challenge."""
    digest = _HASHES[hash_name](message).digest()
    return _MAGIC + b"".join(map(_string, (namespace, b"", hash_name, digest)))


def assertion_signature(key: SshKey, namespace: str, hash_name: bytes, made: Assertion) -> str:
    """What a browser made with a passkey, as a signature in its armor; whether it holds is not asked."""
    numbers = (_string(one.to_bytes(one.bit_length() // 8 + 1, "big")) for one in (made.r, made.s))
    counted, extensions = made.details[:_COUNTER_BYTES], made.details[_COUNTER_BYTES:]
    parts = b"".join(map(_string, (made.origin, made.client_data, extensions)))
    value = _string(ASSERTION.encode()) + _string(b"".join(numbers)) + counted + parts
    named = (key.blob, namespace.encode(), b"", hash_name, value)
    text = base64.b64encode(_MAGIC + _VERSION + b"".join(map(_string, named))).decode()
    lines = (text[at : at + _LINE] for at in range(0, len(text), _LINE))
    return "\n".join(("-----BEGIN SSH SIGNATURE-----", *lines, "-----END SSH SIGNATURE-----", ""))


def read_signature(armored: str) -> SshSignature:
    """A signature in its armor.

    Raises:
        SshSignatureInvalid: it is not of this form, or by a key of another type, or nobody touched the security key,
            or the passkey did not verify who did.
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
        SshSignatureInvalid: it is no Ed25519 key, and no passkey's.
    """
    cursor = _Cursor(blob)
    kind = cursor.string()
    if kind == PASSKEY.encode():
        return _passkey(cursor)
    if kind not in (PLAIN.encode(), SECURITY_KEY.encode()):
        raise SshSignatureInvalid(f"its key is not of type {PLAIN}, {SECURITY_KEY} or {PASSKEY}")
    raw = cursor.string()
    application = cursor.string() if kind == SECURITY_KEY.encode() else None
    cursor.end()
    if len(raw) != _KEY_BYTES:
        raise SshSignatureInvalid("its key is not of 32 bytes")
    return SshKey(raw, application)


def _passkey(cursor: "_Cursor") -> SshKey:
    curve, raw, application = (cursor.string() for _ in range(3))
    cursor.end()
    if curve != _CURVE or not is_point(raw):
        raise SshSignatureInvalid("its key is no point of the curve P-256")
    if not is_rp_id(application):
        raise SshSignatureInvalid("its key is not for a host, as a passkey is")
    return SshKey(raw, application)


def _value(signed: bytes, key: SshKey) -> tuple[bytes | Assertion, bytes]:
    cursor = _Cursor(signed)
    if key.is_passkey:
        return _assertion(cursor, key), b""
    kind, value = cursor.string(), cursor.string()
    details = cursor.take(_COUNTER_BYTES) if key.application is not None else b""
    cursor.end()
    if kind != key.kind.encode() or len(value) != _SIGNATURE_BYTES:
        raise SshSignatureInvalid("it is not of its key's type")
    if details and not details[0] & _TOUCHED:
        raise SshSignatureInvalid("nobody touched the security key")
    return value, details


def _assertion(cursor: "_Cursor", key: SshKey) -> Assertion:
    kind, numbers = cursor.string(), _Cursor(cursor.string())
    details, origin, client_data, extensions = cursor.take(_COUNTER_BYTES), *(cursor.string() for _ in range(3))
    cursor.end()
    if kind != ASSERTION.encode():
        raise SshSignatureInvalid("it is not of its key's type")
    r, s = numbers.positive(), numbers.positive()
    numbers.end()
    found = Assertion(r, s, details + extensions, origin, client_data)
    refused = found.refusal(key.application or b"")
    if refused is not None:
        raise SshSignatureInvalid(refused)
    return found


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

    def positive(self) -> int:
        """A number above 0, in the one form that it has."""
        found = self.string()
        number = int.from_bytes(found, "big") if len(found) <= _LONGEST_NUMBER else 0
        if found != number.to_bytes(number.bit_length() // 8 + 1, "big") or not number:
            raise SshSignatureInvalid("its numbers are not in range")
        return number

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
