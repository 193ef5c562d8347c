"""Ed25519 signatures, verified: a pure function of bytes. Who signs is the runtime's (`aetheris.runtime.keys`)."""

from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


@lru_cache(maxsize=8192)
def verify(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a raw public key signed a message; of what was asked before, the answer is kept.

    The records of a batch have one signature, and several readers of a process ask for it.
    """
    try:
        _loaded(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=256)
def _loaded(public_key: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public_key)
