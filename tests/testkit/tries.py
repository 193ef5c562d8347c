"""Tries by short names: each has a secret that follows from its name, and by that its invocation_id and its words."""

import hashlib

from aetheris.protocol.base.words import TryWord, TryWords
from aetheris.protocol.base.writers import rule_of

_NAMES: dict[str, str] = {}
"""invocation_id → the name that it was made of."""


def secret_of(name: str) -> bytes:
    """What its words begin with."""
    try_of(name)
    return hashlib.sha256(name.encode()).digest()


def words_of(name: str) -> TryWords:
    """The words of the try with this name."""
    return TryWords.of(hashlib.sha256(name.encode()).digest())


def try_of(name: str) -> str:
    """Its invocation_id; what is one already stays as it is: of one that was not made here, no word is known."""
    if len(name) == 64:
        return name
    invocation_id = words_of(name).invocation_id
    _NAMES[invocation_id] = name
    return invocation_id


def end_word(name: str, outcome: str, via: str) -> str | None:
    """The word for such an end, of a try by its name or invocation_id; None where none is asked for."""
    rule = rule_of("tool_invocation_finished", via=via, outcome=outcome)
    return None if rule is None or rule.word is None else _word(name, rule.word)


def doubt_word(name: str, *, returned: bool) -> str:
    """The try's own word for a doubt."""
    return _word(name, TryWord.NO_MORE if returned else TryWord.IN_DOUBT)


def _word(name: str, reported: TryWord) -> str:
    return words_of(_NAMES.get(name, name)).word(reported)
