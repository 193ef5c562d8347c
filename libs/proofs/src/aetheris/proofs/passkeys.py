"""What approvers signed with passkeys: WebAuthn assertions by P-256, as OpenSSH has them inside its signatures."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from aetheris.proofs.records import nests_deeper

_BELOW = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of the curve."""
_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_DEEPEST = 8
_BY_A_PERSON, _REGISTERS, _EXTENDS = 0x05, 0x40, 0x80
"""Flags: somebody was there and was verified; data of a new key; data of extensions."""


@dataclass(frozen=True, slots=True)
class PasskeySignature:
    """The two numbers (DER), the bytes signed beside the hashes of host and client data, and those client data."""

    der: bytes
    flagged: bytes
    client_data: bytes

    def holds(self, point: bytes, host: bytes, challenge: bytes) -> bool:
        """Did the key of this host's pages sign this challenge?"""
        if not _answers(self.client_data, challenge, host):
            return False
        signed = hashlib.sha256(host).digest() + self.flagged + hashlib.sha256(self.client_data).digest()
        try:
            _point(point).verify(self.der, signed, ec.ECDSA(SHA256()))
        except (InvalidSignature, ValueError):
            return False
        return True


def is_key(curve: bytes, point: bytes, host: bytes) -> bool:
    """Is it a key on P-256 for a host?"""
    try:
        named = host.decode("ascii")
        _point(point)
    except ValueError:
        return False
    return curve == b"nistp256" and len(named) <= 253 and _HOST.fullmatch(named) is not None


def read(numbers: Sequence[bytes], flagged: bytes, origin: bytes, client_data: bytes) -> PasskeySignature:
    """A signature of its parts.

    Raises:
        ValueError: it is none by a person who was verified.
    """
    r, s = (_number(one) for one in numbers)
    flags, extensions = flagged[0], flagged[5:]
    if flags & _BY_A_PERSON != _BY_A_PERSON or flags & _REGISTERS or (flags & _EXTENDS > 0) is not (extensions != b""):
        raise ValueError("not by a person")
    if _said(client_data).get("origin") != origin.decode("ascii"):
        raise ValueError("of another origin")
    return PasskeySignature(encode_dss_signature(r, s), flagged, client_data)


def _answers(client_data: bytes, challenge: bytes, host: bytes) -> bool:
    """Client data of just this challenge, on a page of the host itself, inside no other's; as browsers write them."""
    try:
        said = _said(client_data)
    except ValueError:
        return False
    named, origin = host.decode("ascii"), str(said.get("origin"))
    scheme = "https?" if named == "localhost" else "https"
    if re.fullmatch(rf"{scheme}://{re.escape(named)}(?::[1-9][0-9]{{0,4}})?", origin) is None:
        return False
    text = base64.urlsafe_b64encode(challenge).decode().rstrip("=")
    wanted = {"type": "webauthn.get", "challenge": text, "origin": origin}
    start = json.dumps(wanted, separators=(",", ":"))[:-1]
    outside = said.get("crossOrigin") is False or "crossOrigin" not in said
    same = all(said.get(name) == value for name, value in wanted.items())
    return same and client_data.startswith(start.encode()) and outside and "topOrigin" not in said


def _number(data: bytes) -> int:
    """A number of SSH in its shortest form, and in range."""
    number = int.from_bytes(data[:34], "big")
    shortest = number.to_bytes((number.bit_length() + 8) // 8, "big")
    if data != shortest or not 1 <= number < _BELOW:
        raise ValueError("out of range")
    return number


def _point(data: bytes) -> ec.EllipticCurvePublicKey:
    if len(data) != 65 or not data.startswith(b"\x04"):
        raise ValueError("no point")
    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), data)


def _said(client_data: bytes) -> dict[str, Any]:
    if nests_deeper(client_data, _DEEPEST):
        raise ValueError("too deep")
    found = json.loads(client_data.decode(), object_pairs_hook=_pairs, parse_constant=_constant)
    if not isinstance(found, dict) or not client_data.startswith(b"{") or not client_data.endswith(b"}"):
        raise ValueError("no client data")
    return cast("dict[str, Any]", found)


def _pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in members}) < len(members):
        raise ValueError("a member comes twice")
    return dict(members)


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
