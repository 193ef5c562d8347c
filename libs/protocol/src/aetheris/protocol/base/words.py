"""What a try says of itself is proved by a word that only it has (docs/adr/0009-signed-records.md).

A try has a chain of words, each the hash of the one before: a fresh secret, and at the end its invocation_id. Who has
seen one has all behind it and none before it, so what is seen never lets anybody say what weighs more.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import sha256
from itertools import accumulate, repeat

SECRET_BYTES = 32
_NONCE = b"nonce1\0"
_DIGITS = 64


class TryWord(IntEnum):
    """What is said with each word, by its place in the chain; what weighs most stands first, the secret itself."""

    NO_EFFECT = 0
    EFFECT = 1
    NO_MORE = 2
    IN_DOUBT = 3


_LAST = len(TryWord)
_STEPS = tuple(range(_LAST - reported) for reported in TryWord)
"""By word: the hashes from it to the name."""


@dataclass(frozen=True, slots=True)
class TryWords:
    """The words of one try, in the memory of its executor alone; nothing shows them."""

    _chain: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def of(cls, secret: bytes) -> "TryWords":
        """The chain that begins with this secret: SECRET_BYTES random bytes, fresh."""
        return cls(tuple(accumulate(repeat(b"", _LAST), _next, initial=secret)))

    @property
    def invocation_id(self) -> str:
        """The try's name, 64 hex digits: the end of the chain."""
        return self._chain[_LAST].hex()

    def word(self, reported: TryWord) -> str:
        """The word that proves it, 64 hex digits: once it is written, it is everybody's."""
        return self._chain[reported].hex()


def is_word_of(invocation_id: str, reported: TryWord, word: str | None) -> bool:
    """Whether just this try can have said it."""
    if word is None or len(word) != _DIGITS:
        return False
    try:
        value = bytes.fromhex(word)
    except ValueError:
        return False
    if value.hex() != word:
        return False
    for _ in _STEPS[reported]:
        value = sha256(_NONCE + value).digest()
    return value.hex() == invocation_id


def _next(value: bytes, _: bytes) -> bytes:
    return sha256(_NONCE + value).digest()
