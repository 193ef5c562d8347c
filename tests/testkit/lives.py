"""Lives of executors by short names: each has a secret that follows from its name."""

import hashlib

from aetheris.protocol.base.words import LifeWord, LifeWords


def secret_of_life(name: str) -> bytes:
    """What its words begin with."""
    return hashlib.sha256(name.encode()).digest()


def life(name: str) -> LifeWords:
    """The words of the life with this name."""
    return LifeWords.of(secret_of_life(name))


def incarnation_of(name: str) -> str:
    """What it is called in the log."""
    return life(name).incarnation


def ended_word(name: str) -> str:
    """What proves that it has ended."""
    return life(name).word(LifeWord.ENDED)


def left_word(name: str) -> str:
    """What proves that it has left."""
    return life(name).word(LifeWord.LEFT)
