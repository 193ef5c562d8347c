"""What a passkey signs (a WebAuthn assertion by ES256), verified: a pure function of bytes.

Web Authentication, level 3, §7.2, says what is asked of it; OpenSSH's PROTOCOL.u2f, how it lies in an SSH signature.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from aetheris.protocol.base.nesting import nests_deeper

POINT_BYTES = 65
"""Of a public key: 4, x, y."""
MAX_DEPTH = 8
"""Of client data."""

_PRESENT, _VERIFIED, _ATTESTED, _EXTENDED = 0x01, 0x04, 0x40, 0x80
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_RP_ID = re.compile(rb"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_PORT = rb"(:[1-9][0-9]{0,4})?"


@dataclass(frozen=True, slots=True)
class Assertion:
    """A passkey's signature, and what it is of besides the message. `details`: flags, counter, extensions."""

    r: int
    s: int
    details: bytes
    origin: bytes
    client_data: bytes

    def refusal(self, rp_id: bytes) -> str | None:
        """What is wrong with it, whatever was signed; None where nothing is. The counter is not looked at."""
        flags, extensions = self.details[0], self.details[5:]
        if not flags & _PRESENT or not flags & _VERIFIED:
            return "the passkey did not verify who used it"
        if flags & _ATTESTED or bool(flags & _EXTENDED) != bool(extensions):
            return "its flags are not those of a passkey's signature"
        if not (0 < self.r < _ORDER and 0 < self.s < _ORDER):
            return "its numbers are not in range"
        if not is_origin_of(rp_id, self.origin):
            return "it was made on a page of another origin than the key's"
        said = _members(self.client_data)
        if said is None:
            return "its client data are no JSON object with each member once"
        if said.get("crossOrigin", False) is not False or "topOrigin" in said:
            return "it was made inside a page of another origin"
        return None

    def holds(self, point: bytes, rp_id: bytes, message: bytes) -> bool:
        """Whether the key signed with this message as the challenge; no other way to write it counts."""
        challenge = base64.urlsafe_b64encode(message).rstrip(b"=")
        begins = b'{"type":"webauthn.get","challenge":"%b","origin":"%b"' % (challenge, self.origin)
        if self.refusal(rp_id) is not None or not self.client_data.startswith(begins):
            return False
        signed = hashlib.sha256(rp_id).digest() + self.details + hashlib.sha256(self.client_data).digest()
        try:
            _loaded(point).verify(encode_dss_signature(self.r, self.s), signed, ec.ECDSA(SHA256()))
        except (InvalidSignature, ValueError):
            return False
        return True


def is_point(raw: bytes) -> bool:
    """Whether it is a public key: an uncompressed point of the curve P-256."""
    if len(raw) != POINT_BYTES or raw[0] != 4:
        return False
    try:
        _loaded(raw)
    except ValueError:
        return False
    return True


def is_rp_id(application: bytes) -> bool:
    """Whether passkeys can be for it: the name of a host."""
    return _RP_ID.fullmatch(application) is not None


def is_origin_of(rp_id: bytes, origin: bytes) -> bool:
    """Whether its pages may ask for signatures: the host itself, by https; `localhost` by http, too."""
    scheme = rb"https?" if rp_id == b"localhost" else rb"https"
    return re.fullmatch(rb"%b://%b%b" % (scheme, re.escape(rp_id), _PORT), origin) is not None


def _loaded(point: bytes) -> ec.EllipticCurvePublicKey:
    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)


def _members(text: bytes) -> Mapping[str, Any] | None:
    """One JSON object, each member once, not too deep, and nothing around it."""
    if nests_deeper(text, MAX_DEPTH):
        return None
    try:
        found = json.loads(text.decode(), object_pairs_hook=_once, parse_constant=_refuse)
    except ValueError:
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) and text[:1] + text[-1:] == b"{}" else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member comes twice")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
