"""Ed25519 signatures, made and verified: pure functions of bytes. The keys are the runtime's (`aetheris.runtime`)."""

from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from nacl.bindings import crypto_sign, crypto_sign_open
from nacl.exceptions import BadSignatureError

KEY_BYTES, SIGNATURE_BYTES = 32, 64
KEPT = 8192
"""So many answers are kept, the newest."""

_kept: dict[tuple[bytes, bytes, bytes], bool] = {}


def verify(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a raw public key signed a message; of what was asked before, the answer is kept.

    The records of a batch have one signature, and several readers of a process ask for it.
    """
    asked = (public_key, signature, message)
    answer = _kept.get(asked)
    if answer is None:
        answer = _is_by(*asked)
        _keep(asked, answer)
    return answer


def signature_of(seed: bytes, public_key: bytes, message: bytes) -> bytes:
    """A message's signature, by a raw private key and its public one; libsodium's, in two thirds of OpenSSL's time.

    Ed25519 leaves nothing to chance: both make the same, to the byte.
    """
    return crypto_sign(message, seed + public_key)[:SIGNATURE_BYTES]


def signed_here(public_key: bytes, signature: bytes, message: bytes) -> None:
    """This process has just signed it with that key, and need not verify what it reads back."""
    _keep((public_key, signature, message), True)


def _keep(asked: tuple[bytes, bytes, bytes], answer: bool) -> None:
    if len(_kept) >= KEPT:
        del _kept[next(iter(_kept))]
    _kept[asked] = answer


def _is_by(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """libsodium takes a part of what OpenSSL takes (no key or point of small order), and half as long.

    So its yes is enough, and its no is asked again: every reader counts what OpenSSL takes.
    """
    if len(signature) != SIGNATURE_BYTES or len(public_key) != KEY_BYTES:
        return False
    try:
        crypto_sign_open(signature + message, public_key)
    except BadSignatureError:
        return _is_by_openssl(public_key, signature, message)
    return True


def _is_by_openssl(public_key: bytes, signature: bytes, message: bytes) -> bool:
    try:
        _loaded(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=256)
def _loaded(public_key: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public_key)
