"""What stands in a job's records for a person's value: `{"$hidden": {"c": …, "d": …, "k": …}}` (docs/hidden-values.md).

c    SHA-256("ah1" ␀ salt ␀ JCS(value)), salt = HMAC-SHA-256(subject key, "c" ␀ tenant ␀ job ␀ JCS(value)): commits
d    HMAC-SHA-256(subject key, "d" ␀ tenant ␀ JCS(value)): the same for equal values of one subject in a tenant
k    a pseudonym of the subject, random; of several subjects theirs, sorted, with dots between

c and d are 64 hex digits, each pseudonym is 32. Without the subject's key nothing can be told of the value.
"""

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.references import HIDDEN, pointer_part

MARK = b'"$hidden":'
"""In the canonical form of whatever holds one."""
MOST_SUBJECTS = 4
"""Of one value."""
KEY_BYTES = 32
LONGEST_SUBJECT = 512
"""Characters of a subject's name."""

_NESTS = (dict, list, tuple)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PSEUDONYMS = re.compile(rf"[0-9a-f]{{32}}(\.[0-9a-f]{{32}}){{0,{MOST_SUBJECTS - 1}}}")
_PARTS = frozenset({"c", "d", "k"})


class InvalidHidden(ValueError):
    """What says `$hidden` and is no hidden value; `at` is a JSON Pointer."""

    def __init__(self, at: str) -> None:
        super().__init__(f"{at or '/'}: {HIDDEN} with anything but c, d and k")
        self.at = at


@dataclass(frozen=True, slots=True)
class HiddenValue:
    """What is recorded in place of a value."""

    c: str
    d: str
    k: str

    def json(self) -> dict[str, Any]:
        """As it lies in records."""
        return {HIDDEN: {"c": self.c, "d": self.d, "k": self.k}}

    @property
    def pseudonyms(self) -> tuple[str, ...]:
        """Of its subjects."""
        return tuple(self.k.split("."))


@dataclass(frozen=True, slots=True)
class HiddenPlace:
    """A place in some arguments (`at`, JSON Pointer) where a hidden value stands."""

    at: str
    value: HiddenValue


def hidden(key: bytes, k: str, tenant: str, job_id: str, value: Any) -> HiddenValue:
    """What stands for a value in a job; `key` is its subject's, or `joint_key` of several.

    Raises:
        InvalidArgs: it has no canonical form.
    """
    data, salt = canonical(value), salt_of(key, tenant, job_id, value)
    commitment = hashlib.sha256(b"\0".join((b"ah1", salt, data))).hexdigest()
    return HiddenValue(commitment, _mac(key, b"d", tenant, data).hex(), k)


def salt_of(key: bytes, tenant: str, job_id: str, value: Any) -> bytes:
    """What shows, beside the value, that it is the one that was hidden; raises InvalidArgs."""
    return _mac(key, b"c", tenant, job_id, canonical(value))


def joint_key(keys: Mapping[str, bytes]) -> tuple[str, bytes]:
    """(the pseudonym, the key) of what belongs to several subjects: without any one of their keys there is none.

    Args:
        keys: pseudonym → its subject's key.
    """
    if len(keys) == 1:
        return next(iter(keys.items()))
    names = sorted(keys)
    return ".".join(names), hashlib.sha256(b"aj1\0" + b"".join(keys[name] for name in names)).digest()


def blob_key(key: bytes) -> bytes:
    """What the value's ciphertext is made with: HMAC-SHA-256(key, "e")."""
    return hmac.digest(key, b"e", "sha256")


def associated_data(tenant: str, job_id: str, value: HiddenValue) -> bytes:
    """What the ciphertext is bound to: tenant ␀ job ␀ k ␀ c."""
    return "\0".join((tenant, job_id, value.k, value.c)).encode()


def hidden_places(part: Any) -> Iterator[HiddenPlace]:
    """Every hidden value, in the order of the document.

    Raises:
        InvalidHidden: one that says something else.
    """
    return _places(part, "")


def recorded_places(part: Any, at: str = "") -> Iterator[HiddenPlace]:
    """Every hidden value of a record, which may hold other things that claim to be one."""
    if isinstance(part, dict):
        held = cast("dict[str, Any]", part)
        if HIDDEN in held:
            with suppress(InvalidHidden):
                yield HiddenPlace(at, _read(held, at))
                return
        for name, inner in held.items():
            if isinstance(inner, _NESTS):
                yield from recorded_places(inner, at + pointer_part(name))
    elif isinstance(part, list):
        for index, inner in enumerate(cast("list[Any]", part)):
            if isinstance(inner, _NESTS):
                yield from recorded_places(inner, f"{at}/{index}")


def holds_hidden(part: Any) -> bool:
    """Whether anything in it is, or claims to be, a hidden value."""
    return hidden_at(part) is not None


def hidden_at(part: Any, at: str = "") -> str | None:
    """Where the first thing is that claims to be a hidden value, a JSON Pointer."""
    if isinstance(part, dict):
        held = cast("dict[str, Any]", part)
        if HIDDEN in held:
            return at
        inner = ((pointer_part(name), value) for name, value in held.items())
    elif isinstance(part, list | tuple):
        inner = ((f"/{index}", value) for index, value in enumerate(cast("list[Any]", part)))
    else:
        return None
    found = (hidden_at(value, at + name) for name, value in inner if isinstance(value, _NESTS))
    return next((one for one in found if one is not None), None)


def by_meaning(part: Any) -> Any:
    """The same, each hidden value without its c, which depends on the job; the input is left as it is."""
    if isinstance(part, dict):
        held = cast("dict[str, Any]", part)
        value = _value(held)
        if value is not None:
            return {HIDDEN: {"d": value["d"], "k": value["k"]}}
        return {name: by_meaning(inner) for name, inner in held.items()}
    if isinstance(part, list | tuple):
        return [by_meaning(inner) for inner in cast("list[Any]", part)]
    return part


def put_at(part: Any, at: str, value: Any) -> Any:
    """The same with another value at a place (JSON Pointer) of its objects; the input is left as it is.

    Raises:
        LookupError: there is no such place.
    """
    if at == "":
        return value
    name, _, rest = at[1:].partition("/")
    name = name.replace("~1", "/").replace("~0", "~")
    if not isinstance(part, dict) or name not in part:
        raise LookupError(at)
    held = cast("dict[str, Any]", part)
    return held | {name: put_at(held[name], f"/{rest}" if rest or at.endswith("/") else "", value)}


def _mac(key: bytes, use: bytes, *said: str | bytes) -> bytes:
    parts = (use, *(one.encode() if isinstance(one, str) else one for one in said))
    return hmac.digest(key, b"\0".join(parts), "sha256")


def _value(held: Mapping[str, Any]) -> Mapping[str, str] | None:
    """What a hidden value says, by its shape alone: what records hold is judged so by all who read them."""
    said = held.get(HIDDEN)
    if len(held) != 1 or not isinstance(said, dict):
        return None
    parts = cast("dict[str, Any]", said)
    return parts if parts.keys() == _PARTS and all(isinstance(one, str) for one in parts.values()) else None


def _places(part: Any, at: str) -> Iterator[HiddenPlace]:
    if isinstance(part, dict):
        held = cast("dict[str, Any]", part)
        if HIDDEN in held:
            yield HiddenPlace(at, _read(held, at))
            return
        for name, inner in held.items():
            if isinstance(inner, _NESTS):
                yield from _places(inner, at + pointer_part(name))
    elif isinstance(part, list | tuple):
        for index, inner in enumerate(cast("list[Any]", part)):
            if isinstance(inner, _NESTS):
                yield from _places(inner, f"{at}/{index}")


def _read(held: Mapping[str, Any], at: str) -> HiddenValue:
    said = _value(held)
    if said is None or not all(map(_DIGEST.fullmatch, (said["c"], said["d"]))):
        raise InvalidHidden(at)
    names = said["k"].split(".")
    if not _PSEUDONYMS.fullmatch(said["k"]) or names != sorted(set(names)):
        raise InvalidHidden(at)
    return HiddenValue(said["c"], said["d"], said["k"])
