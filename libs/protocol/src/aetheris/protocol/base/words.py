"""What a try says of itself, or is said of a worker's life, is proved by a word (docs/adr/0009-signed-records.md).

A try has a chain of words, each the hash of the one before: a fresh secret, and at the end its invocation_id. Who has
seen one has all behind it and none before it, so what is seen never lets anybody say what weighs more. A life has one
of its own, with its incarnation at the end.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import sha256
from itertools import accumulate, repeat
from typing import Annotated

from pydantic import Field

SECRET_BYTES = 32
MAX_REMEMBERED = 200
"""Lives of a name that left, and that ended, which its line repeats; whoever needs older ones has long read them."""

HexDigits = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A word, or what its chain ends with."""
WordsOfLives = Annotated[tuple[HexDigits, ...], Field(max_length=MAX_REMEMBERED)]

_NONCE = b"nonce1\0"
_LIFE = b"worker1\0"
_CALLS = b"call1\0"
_DIGITS = 64
_STRETCH = 64
"""Words of calls of which one is kept."""


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
    value = None if word is None else _bytes_of(word)
    if value is None:
        return False
    for _ in _STEPS[reported]:
        value = sha256(_NONCE + value).digest()
    return value.hex() == invocation_id


def _next(value: bytes, _: bytes) -> bytes:
    return sha256(_NONCE + value).digest()


class CallWords:
    """The words of the calls that a body plans, one for each: nobody knows the next from those that were said.

    Of a long chain only a word in so many is kept, and those between are made again when they are needed.
    """

    __slots__ = ("_at", "_count", "_kept", "_last", "_stretch")

    def __init__(self, secret: bytes, count: int) -> None:
        self._count = count
        self._kept: list[bytes] = []
        value = secret
        for place in range(count):
            if place % _STRETCH == 0:
                self._kept.append(value)
            value = _next_of_calls(value, b"")
        self._last = value
        self._at = -1
        self._stretch: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, secret: bytes, count: int) -> "CallWords":
        """For so many calls; the chain begins with this secret: SECRET_BYTES random bytes, fresh."""
        return cls(secret, count)

    @property
    def plans(self) -> str:
        """What the body's start names, 64 hex digits: the end of the chain."""
        return self._last.hex()

    def word(self, number: int) -> str:
        """Of the call of this number, from 0; 64 hex digits.

        Raises:
            IndexError: the words are used up.
        """
        if not 0 <= number < self._count:
            raise IndexError("no word is left")
        at, within = divmod(self._count - 1 - number, _STRETCH)
        if at != self._at:
            self._stretch = tuple(accumulate(repeat(b"", _STRETCH - 1), _next_of_calls, initial=self._kept[at]))
            self._at = at
        return self._stretch[within].hex()


def is_next_word(before: str | None, word: str | None) -> bool:
    """Whether it follows the word of the call before, or what the body's start names; None there: nothing does."""
    value = None if word is None else _bytes_of(word)
    return value is not None and _next_of_calls(value, b"").hex() == before


class LifeWord(IntEnum):
    """What is said of a life with each of its words, by its place in the chain."""

    ENDED = 0
    LEFT = 1


_INCARNATION = len(LifeWord)


@dataclass(frozen=True, slots=True)
class LifeWords:
    """The words of one life of an executor: it says that it leaves, who has its lock behind it that it has ended."""

    _chain: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def of(cls, secret: bytes) -> "LifeWords":
        """The chain that begins with this secret: SECRET_BYTES random bytes, fresh."""
        return cls(tuple(accumulate(repeat(b"", _INCARNATION), _next_of_life, initial=secret)))

    @property
    def incarnation(self) -> str:
        """The life's name, 64 hex digits: the end of the chain."""
        return self._chain[_INCARNATION].hex()

    def word(self, said: LifeWord) -> str:
        """The word that proves it, 64 hex digits: once it is written, it is everybody's."""
        return self._chain[said].hex()


def life_of(said: LifeWord, word: str) -> str | None:
    """The incarnation of which this word proves it; None where it is no word."""
    value = _bytes_of(word)
    if value is None:
        return None
    for _ in range(_INCARNATION - said):
        value = sha256(_LIFE + value).digest()
    return value.hex()


def _bytes_of(word: str) -> bytes | None:
    """Of 64 hex digits, small ones."""
    try:
        value = bytes.fromhex(word) if len(word) == _DIGITS else b""
    except ValueError:
        return None
    return value if value.hex() == word else None


def _next_of_calls(value: bytes, _: bytes) -> bytes:
    return sha256(_CALLS + value).digest()


def _next_of_life(value: bytes, _: bytes) -> bytes:
    return sha256(_LIFE + value).digest()
