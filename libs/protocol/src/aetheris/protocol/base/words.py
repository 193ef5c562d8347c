"""What a try says of itself is proved by a word that only it has (docs/adr/0009-signed-records.md).

A try has a chain of words, each the hash of the one before: a fresh secret, and at the end its invocation_id. Who has
seen one has all behind it and none before it, so what is seen never lets anybody say what weighs more.
"""

import hashlib
import re
from enum import IntEnum

SECRET_BYTES = 32
_HEX = re.compile(r"[0-9a-f]{64}")


class TryWord(IntEnum):
    """What is said with each word, by its place in the chain; what weighs most stands first, the secret itself."""

    NO_EFFECT = 0
    EFFECT = 1
    NO_MORE = 2
    IN_DOUBT = 3


_LAST = len(TryWord)


def word(secret: bytes, reported: TryWord) -> str:
    """The word that proves it, 64 hex digits."""
    return _hashed(secret, reported).hex()


def invocation_id_of(secret: bytes) -> str:
    """The try's name, 64 hex digits: the end of the chain."""
    return _hashed(secret, _LAST).hex()


def is_word_of(invocation_id: str, reported: TryWord, word: str | None) -> bool:
    """Whether just this try can have said it."""
    if word is None or not _HEX.fullmatch(word):
        return False
    return _hashed(bytes.fromhex(word), _LAST - reported).hex() == invocation_id


def _hashed(value: bytes, times: int) -> bytes:
    for _ in range(times):
        value = hashlib.sha256(b"nonce1\0" + value).digest()
    return value
