"""What a record may hold of what others say: bounded, and readable by every service (docs/events.md, "Limits").

Tools, models, probes, humans, Redis and Kafka may say anything. Whatever has an effect behind it is recorded all the
same, in a form that can be; nothing here raises.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, cast

from aetheris.protocol.base.canonical import InvalidArgs, canonical

MAX_DEPTH = 64
"""Levels of nesting; every service parses a record again, and none may run out of stack."""
MAX_RECORD_DEPTH = 128
"""Levels of a whole record, beyond which nobody reads it: those of a value, what records nest around it, and as much
again. No parser that reads records ends before (jiter does at 200)."""
INLINE_LIMIT = 64 * 1024
"""Bytes of a value's JCS up to which it travels in its record; a larger one becomes a blob and a reference."""
LONGEST_NAME = 1_000
"""Characters of what names something outside: an external id, a resource."""
LONGEST_TEXT = 2_000
"""Characters of an error, or of a reason."""
MAX_EVIDENCE_BYTES = 64 * 1024
"""JCS bytes of the evidence of one record, or of a difference."""
MAX_CHANGES_BYTES = 256 * 1024
"""JCS bytes of the recorded changes of one call."""
MOST_ITEMS = 10_000
"""Changes, or pieces of evidence, that are looked at."""

_KEPT_OF_NAME = 900
_SHORT_BYTES = 1_000
_MOST_SHOWN = 30
_NESTS = (dict, list, tuple)

Change = dict[str, str]
"""A change of a resource outside, as state_changed has it."""


def is_deep(value: Any, levels: int = MAX_DEPTH) -> bool:
    """Whether a JSON value nests deeper than so many levels; a value that is no container has none."""
    level: list[Any] = [value] if isinstance(value, _NESTS) else []
    for _ in range(levels):
        level = [inner for outer in level for inner in _insides(outer) if isinstance(inner, _NESTS)]
        if not level:
            return False
    return bool(level)


def text(value: object, longest: int = LONGEST_TEXT) -> str:
    """`value` as a text that any log can hold: lone surrogates escaped, cut at `longest` characters."""
    found = as_text(value)
    return _encodable(found[:longest])


def name(value: object) -> str:
    """What names something outside; one that is too long stays a name: its beginning, and the hash of the whole."""
    found = _encodable(as_text(value))
    if len(found) <= LONGEST_NAME:
        return found
    return f"{found[:_KEPT_OF_NAME]}… sha256:{hashlib.sha256(found.encode()).hexdigest()}"


def result(value: Any) -> tuple[Any, bytes]:
    """A result as it is recorded, and its JCS bytes: itself where every service can read that, else its bytes.

    A result comes after its effect, so it is never an error: {"$raw": base64 of its JSON}, or where it is none
    {"$unserialisable": its type}.
    """
    try:
        data = canonical(value)
        if not _may_be_deep(data) or not is_deep(value):
            return value, data
    except (InvalidArgs, RecursionError, ValueError, TypeError):
        pass
    kept = _raw(value)
    return kept, canonical(kept)


def evidence(values: Iterable[Any], room: int = MAX_EVIDENCE_BYTES) -> tuple[Any, ...]:
    """Evidence as it is recorded: what finds no room is named by its size and hash."""
    found: list[Any] = []
    for one in in_order(values):
        kept, data = result(one)
        if len(data) > room:
            kept = left_out(data)
        else:
            room -= len(data)
        found.append(kept)
    return tuple(found)


def detail(value: Any) -> Any:
    """A difference as it is recorded."""
    kept, data = result(value)
    return kept if len(data) <= MAX_EVIDENCE_BYTES else left_out(data)


def shown(args: dict[str, Any]) -> dict[str, Any]:
    """Arguments as a human is shown them: themselves, or where they are too large or too deep, what names each."""
    if len(canonical(args)) <= INLINE_LIMIT and not is_deep(args):
        return args
    return {field: _beginning(value) for field, value in islice(args.items(), _MOST_SHOWN)}


def left_out(data: bytes) -> dict[str, Any]:
    """What stands for JCS bytes that find no room in a record."""
    return {"$left_out": {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}}


def changes(values: Iterable[Mapping[str, Any]]) -> tuple[Change, ...]:
    """Changes as they are recorded; that some find no room is said rather than lost in silence."""
    kept: list[Change] = []
    room = MAX_CHANGES_BYTES
    for place, value in enumerate(in_order(values)):
        change = {field: name(inner) for field, inner in value.items() if inner is not None}
        room -= len(canonical(change))
        if room < 0:
            rest = f"changes after the first {place}"
            return (*kept, {"resource_type": "aetheris", "resource_id": rest, "operation": "left_out"})
        kept.append(change)
    return tuple(kept)


def _beginning(value: Any) -> Any:
    """A value that is short; else how it begins, its size and its hash."""
    data = canonical(value)
    if len(data) <= _SHORT_BYTES:
        return value
    begins = value if isinstance(value, str) else data[: 4 * _KEPT_OF_NAME].decode(errors="ignore")
    return {**left_out(data), "begins": begins[:_KEPT_OF_NAME]}


def in_order(values: Iterable[Any]) -> Iterator[Any]:
    """As far as they can be had, and not without end: what can't be iterated, or breaks off, ends there."""
    try:
        found = iter(values)
    except Exception:  # noqa: BLE001 - it is no sequence, or a tool's own, which may raise anything
        return
    for _ in range(MOST_ITEMS):
        try:
            one = next(found)
        except Exception:  # noqa: BLE001 - StopIteration, or whatever a tool's own iterator raises
            return
        yield one


def as_text(value: object) -> str:
    """`value` as a text, whatever its own code does."""
    return value if isinstance(value, str) else _try(lambda: str(value)) or type(value).__name__


def _try(reported: Callable[[], Any]) -> Any:
    """What others' code says; None where it raises."""
    try:
        return reported()
    except Exception:  # noqa: BLE001 - it may raise anything
        return None


def _encodable(found: str) -> str:
    return found if found.isascii() else found.encode("utf-8", "backslashreplace").decode()


def _raw(value: Any) -> dict[str, Any]:
    data = _try(lambda: json.dumps(value, default=repr, ensure_ascii=True).encode())
    return {"$unserialisable": type(value).__name__} if data is None else {"$raw": base64.b64encode(data).decode()}


def _may_be_deep(data: bytes) -> bool:
    """Whether there are brackets enough: most results have few, and this is far faster than to look."""
    return data.count(b"{") + data.count(b"[") > MAX_DEPTH


def _insides(value: Any) -> Iterable[Any]:
    return cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
