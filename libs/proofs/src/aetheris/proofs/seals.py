"""Seals: a signed statement of a finished job's chain and hashes (DSSE, Ed25519; docs/verification.md)."""

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from aetheris.proofs.canonical import canonical
from aetheris.proofs.chain import VERSION

PAYLOAD_TYPE = "application/vnd.aetheris.seal+json"

_BESIDE = frozenset({"signature", "certificate", "sig"})
"""What a seal does not state: its signature, and what says whose its record is."""


class SigningKey(Protocol):
    """What can sign with Ed25519, wherever the key is: an Ed25519PrivateKey is one, a token's key is."""

    def public_key(self) -> Ed25519PublicKey:
        """What checks its signatures."""
        ...

    def sign(self, data: bytes, /) -> bytes:
        """A signature, 64 bytes."""
        ...


def seal_payload(
    *,
    tenant: str,
    job_id: str,
    event_count: int,
    root: str,
    tree: str,
    execution_hash: str,
    outcome_hash: str,
    sealed_at: str,
    salt: str,
    calls: str = "",
    amends: str | None = None,
    consistency: Sequence[str] = (),
) -> dict[str, Any]:
    """What a seal states, still unsigned. Hashes are in hex; it covers the first `event_count` records.

    `root` is the chain's over them in its version 1, `tree` in version 2.
    `sealed_at` (RFC 3339) says which keys may sign it; nothing else depends on it. `salt` (16 random bytes, hex) keeps
    whoever sees the line's hash in the log of seals from guessing the rest. `calls` is the root over the calls of which
    parts can be shown alone (`proofs.disclosures`); a seal without it lets none be shown. An amendment names the line
    of the seal that it `amends`, by its SHA-256, and proves by `consistency` (RFC 9162 §2.1.4, hex) that its tree only
    grew since.
    """
    stated = {
        "tenant": tenant,
        "job_id": job_id,
        "event_count": event_count,
        "root": root,
        "chain": VERSION,
        "tree": tree,
        "execution_hash": execution_hash,
        "outcome_hash": outcome_hash,
        "sealed_at": sealed_at,
        "salt": salt,
        **({"calls": calls} if calls else {}),
    }
    return stated if amends is None else {**stated, "amends": amends, "consistency": list(consistency)}


def sign(payload: Mapping[str, Any], private_key: SigningKey) -> dict[str, Any]:
    """A payload with its key_id and its signature (base64)."""
    named = {**payload, "key_id": key_id(private_key.public_key())}
    signature = private_key.sign(_signed_bytes(named))
    return {**named, "signature": base64.b64encode(signature).decode()}


def verify(payload: Mapping[str, Any], public_key: Ed25519PublicKey) -> bool:
    """Did this key sign this payload, to the last field?"""
    signature = payload.get("signature")
    if not isinstance(signature, str) or payload.get("key_id") != key_id(public_key):
        return False
    try:
        public_key.verify(base64.b64decode(signature, validate=True), _signed_bytes(payload))
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def key_id(public_key: Ed25519PublicKey) -> str:
    """The first 16 hex digits of SHA-256 of the raw public key."""
    return hashlib.sha256(public_key.public_bytes_raw()).hexdigest()[:16]


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding (DSSE v1, protocol)."""
    return b"DSSEv1 %d %b %d %b" % (len(payload_type), payload_type.encode(), len(payload), payload)


def _signed_bytes(payload: Mapping[str, Any]) -> bytes:
    unsigned = {name: value for name, value in payload.items() if name not in _BESIDE}
    return pae(PAYLOAD_TYPE, canonical(unsigned))
