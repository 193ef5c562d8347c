"""Hidden values of a job's records, and what was shown of them beside: whether it is what was hidden.

An opening is {"c", "salt", "value"}: c is SHA-256("ah1" ␀ salt ␀ JCS(value)), and stands in a record
(docs/hidden-values.md).
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from aetheris.proofs.canonical import canonical
from aetheris.proofs.records import MAX_DEPTH, LoggedRecord, RawRecord, body_of, nests_deeper

MAX_OPENINGS_BYTES = 64 * 1024 * 1024
_MARK = b'"$hidden"'
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PSEUDONYMS = re.compile(r"[0-9a-f]{32}(\.[0-9a-f]{32}){0,3}")


class BadOpenings(ValueError):
    """A file of openings that can't be read; the message says nothing of what is in it."""

    code = "bad_openings"


@dataclass(frozen=True, slots=True)
class OpenedValues:
    """How many different values records hide, how many of them were opened, and which openings are of none of them."""

    hidden: int
    opened: int
    wrong: tuple[str, ...]
    """The c that each names."""


def read_openings(data: bytes) -> list[Mapping[str, Any]]:
    """The openings of a file, {"openings": […]}.

    Raises:
        BadOpenings.
    """
    if len(data) > MAX_OPENINGS_BYTES or nests_deeper(data, MAX_DEPTH):
        raise BadOpenings("too large, or nested too deep")
    try:
        found = json.loads(data)["openings"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise BadOpenings('not {"openings": […]}') from None
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in cast("list[object]", found)):
        raise BadOpenings("openings are a list of objects")
    return cast("list[Mapping[str, Any]]", found)


def opened_values(records: Iterable[RawRecord], openings: Iterable[Mapping[str, Any]]) -> OpenedValues:
    """What of the records is hidden, and whether the openings fit."""
    hidden = {c for record in records for c in hidden_in(record, body_of(record.value))}
    opened: set[str] = set()
    wrong: list[str] = []
    for one in openings:
        c = str(one.get("c"))
        if c in hidden and fits(one):
            opened.add(c)
        else:
            wrong.append(c)
    return OpenedValues(len(hidden), len(opened), tuple(wrong))


def hidden_in(record: LoggedRecord, body: object) -> Iterator[str]:
    """The c of each value that a record hides; `body` is what it says."""
    return (c for c, _ in hidden_values_in(record, body))


def is_hidden(value: object) -> bool:
    """Whether it is one hidden value as a gateway writes it, whose form tells nobody what it is: tools write others."""
    if not isinstance(value, dict) or cast("dict[str, object]", value).keys() != {"$hidden"}:
        return False
    said = cast("dict[str, object]", value)["$hidden"]
    if not isinstance(said, dict) or cast("dict[str, object]", said).keys() != {"c", "d", "k"}:
        return False
    parts = [cast("dict[str, object]", said)[name] for name in ("c", "d", "k")]
    forms = (_DIGEST, _DIGEST, _PSEUDONYMS)
    return all(isinstance(one, str) and form.fullmatch(one) for form, one in zip(forms, parts, strict=True))


def commitments_in(part: object) -> Iterator[str]:
    """The c of each value that is hidden in a part of a record."""
    return (c for c, _ in _hidden_values(part))


def hidden_values_in(record: LoggedRecord, body: object) -> Iterator[tuple[str, str]]:
    """(its c, its k) of each value that a record hides; `body` is what it says."""
    return _hidden_values(body) if may_hide(record) else iter(())


def may_hide(record: LoggedRecord) -> bool:
    """Whether a value may be hidden in it: in most none is, and nobody needs to look."""
    return _MARK in record.value


def fits(opening: Mapping[str, Any]) -> bool:
    """Whether c is made of the salt and the value that stand beside it."""
    salt = opening.get("salt")
    if not isinstance(salt, str) or not _DIGEST.fullmatch(salt):
        return False
    try:
        data = canonical(opening["value"])
    except (KeyError, ValueError):
        return False
    return hashlib.sha256(b"\0".join((b"ah1", bytes.fromhex(salt), data))).hexdigest() == opening.get("c")


def _hidden_values(part: object) -> Iterator[tuple[str, str]]:
    if isinstance(part, dict):
        held = cast("dict[str, object]", part)
        said = held.get("$hidden")
        if len(held) == 1 and isinstance(said, dict):
            parts = cast("dict[str, object]", said)
            c = parts.get("c")
            if parts.keys() == {"c", "d", "k"} and isinstance(c, str) and _DIGEST.fullmatch(c):
                yield c, str(parts["k"])
                return
        for inner in held.values():
            yield from _hidden_values(inner)
    elif isinstance(part, list):
        for inner in cast("list[object]", part):
            yield from _hidden_values(inner)
