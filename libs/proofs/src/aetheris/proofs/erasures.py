"""Which of the values that records hide were erased, and when, as lines of the log of seals say.

A line is the word of who destroyed the key, as an auditor was told it (docs/hidden-values.md#erased-and-when).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from aetheris.proofs.claims import log_entry
from aetheris.proofs.log_lines import erased_of, read_line
from aetheris.proofs.notes import BadNote, open_inclusion
from aetheris.proofs.openings import MAX_OPENINGS_BYTES, hidden_values_in
from aetheris.proofs.records import MAX_DEPTH, RawRecord, body_of, nests_deeper
from aetheris.proofs.trust import SEAL, TrustedKey, keyring


class BadErasures(ValueError):
    """A file of lines that can't be read."""

    code = "bad_erasures"


@dataclass(frozen=True, slots=True)
class Erasure:
    """That a key was destroyed at `erased_at`, and how many different values of the records it closes."""

    pseudonym: str
    erased_at: str
    logged_at: str
    values: int

    def to_json(self) -> dict[str, Any]:
        """As reports have it."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class ErasedValues:
    """How many different hidden values are erased, by which erasures; `wrong`: the places of lines that say nothing."""

    erased: int
    erasures: tuple[Erasure, ...]
    wrong: tuple[int, ...]


def read_erasures(data: bytes) -> list[Mapping[str, str]]:
    """The lines of a file, {"lines": [{"line", "proof"}]}.

    Raises:
        BadErasures.
    """
    if len(data) > MAX_OPENINGS_BYTES or nests_deeper(data, MAX_DEPTH):
        raise BadErasures("too large, or nested too deep")
    try:
        found = json.loads(data)["lines"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise BadErasures('not {"lines": […]}') from None
    if not isinstance(found, list) or not all(map(_is_line, cast("list[object]", found))):
        raise BadErasures("lines are a list of {line, proof}")
    return cast("list[Mapping[str, str]]", found)


def erased_values(
    records: Iterable[RawRecord], lines: Sequence[Mapping[str, str]], keys: Sequence[TrustedKey], now: datetime
) -> ErasedValues:
    """What of the records is hidden under keys that these lines say are destroyed.

    A line counts that one of the keys has signed, and that its proof shows to lie in the log of seals.
    """
    known = keyring(keys, SEAL)
    said = [_read(one, known, keys, now) for one in lines]
    first = dict[str, tuple[str, str, str]]()
    for one in said:
        if one is not None:
            first.setdefault(one[0], one)
    under = dict[str, set[str]]()
    for record in records:
        for c, k in hidden_values_in(record, body_of(record.value)):
            for pseudonym in k.split("."):
                under.setdefault(pseudonym, set()).add(c)
    found = tuple(Erasure(*one, len(under[k])) for k, one in first.items() if k in under)
    erased = {c for one in found for c in under[one.pseudonym]}
    return ErasedValues(len(erased), found, tuple(at for at, one in enumerate(said) if one is None))


def _is_line(part: object) -> bool:
    held = cast("dict[str, object]", part) if isinstance(part, dict) else {}
    return all(isinstance(held.get(name), str) for name in ("line", "proof"))


def _read(
    shown: Mapping[str, str], known: Mapping[str, TrustedKey], keys: Sequence[TrustedKey], now: datetime
) -> tuple[str, str, str] | None:
    line = shown["line"].encode(errors="surrogatepass")
    said = read_line(line, known)
    try:
        open_inclusion(shown["proof"], log_entry(line), keys, now)
    except BadNote:
        return None
    return erased_of(said) if said is not None else None
