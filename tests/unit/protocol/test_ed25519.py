"""Every reader counts the signatures that OpenSSL takes, whoever is asked first."""

import random

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from aetheris.proofs.signatures import is_by
from aetheris.protocol.base.ed25519 import verify

ORDER = 2**252 + 27742317777372353535851937790883648493
ONE = (1).to_bytes(32, "little")
"""The neutral point: a key under which a signature of zeros holds for any message."""
MESSAGE = b"what was said"


def taken_by_openssl(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """The answer that all readers have in common."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def assert_alike(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """What services and proofs take, OpenSSL takes, and the other way round."""
    expected = taken_by_openssl(public_key, signature, message)
    found = verify(public_key, signature, message), is_by(public_key, signature, message)
    assert found == (expected, expected), (public_key.hex(), signature.hex(), message.hex())
    return expected


def test_a_key_and_a_point_of_small_order_count_as_openssl_has_it() -> None:
    assert assert_alike(ONE, ONE + bytes(32), MESSAGE)  # libsodium by itself refuses it


def test_who_knows_a_key_may_sign_with_a_point_of_small_order() -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(31) + b"\1")
    public, said = key.public_key().public_bytes_raw(), key.sign(MESSAGE)
    assert assert_alike(public, said, MESSAGE)
    assert not assert_alike(public, ONE + said[32:], MESSAGE)


def test_a_signature_has_one_form() -> None:
    key = Ed25519PrivateKey.generate()
    public, said = key.public_key().public_bytes_raw(), key.sign(MESSAGE)
    beyond = (int.from_bytes(said[32:], "little") + ORDER).to_bytes(32, "little")
    assert not assert_alike(public, said[:32] + beyond, MESSAGE)


@pytest.mark.parametrize("moved", [-1, 1, 16])
def test_what_is_cut_elsewhere_is_signed_by_nobody(moved: int) -> None:
    key = Ed25519PrivateKey.generate()
    public, whole = key.public_key().public_bytes_raw(), key.sign(MESSAGE) + MESSAGE
    assert not assert_alike(public, whole[: 64 + moved], whole[64 + moved :])
    assert not assert_alike(public[:moved], whole[:64], MESSAGE)


@pytest.mark.parametrize("seed", range(4))
def test_a_bit_more_or_less_is_taken_alike(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  not for secrets
    for _ in range(500):
        key = Ed25519PrivateKey.from_private_bytes(chance.randbytes(32))
        message = chance.randbytes(chance.randrange(100))
        parts = [bytearray(key.public_key().public_bytes_raw()), bytearray(key.sign(message)), bytearray(message)]
        assert assert_alike(*map(bytes, parts))
        part = chance.choice(parts[:2])
        part[chance.randrange(len(part))] ^= 1 << chance.randrange(8)
        assert_alike(*map(bytes, parts))
