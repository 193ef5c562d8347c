"""References in a plan's arguments, and in records: where a value stands that is said elsewhere."""

import re
from collections.abc import Iterator, Mapping
from operator import is_ as _is
from typing import Any, cast

from aetheris.proofs.records import Body

_SHA256 = re.compile(r"[0-9a-f]{64}")
_HIDDEN = "$hidden"
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")


class NoSuchPlace(Exception):
    """What a reference leads to is not there."""


def targets(part: object) -> Iterator[str]:
    """What the references in a part of a node's arguments name, in the order of the document: NODE#/json/pointer."""
    if isinstance(part, list):
        for inner in cast("list[object]", part):
            yield from targets(inner)
    elif isinstance(part, dict):
        held = cast("Body", part)
        target = held.get("$ref")
        if len(held) == 1 and isinstance(target, str):
            yield target
            return
        for inner in held.values():
            yield from targets(inner)


def with_values(part: Any, values: Mapping[str, Any]) -> Any:
    """The same with what they name in place of the references; the part is left as it is."""
    if isinstance(part, list):
        return [with_values(inner, values) for inner in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    held = cast("dict[str, Any]", part)
    if len(held) == 1 and isinstance(held.get("$ref"), str):
        return values[held["$ref"]]
    return {name: with_values(inner, values) for name, inner in held.items()}


def by_meaning(part: Any) -> Any:
    """The same, of each hidden value d and k alone, as c depends on its job; itself where nothing in it is hidden."""
    if isinstance(part, list):
        items = [by_meaning(inner) for inner in cast("list[Any]", part)]
        return part if all(map(_is, items, cast("list[Any]", part))) else items
    if not isinstance(part, dict):
        return part
    held = cast("dict[str, Any]", part)
    if not any(type(inner) is dict or type(inner) is list for inner in held.values()):
        return part  # most, and nothing can be hidden in it
    said = held.get(_HIDDEN)
    if len(held) == 1 and isinstance(said, dict):
        parts = cast("dict[str, Any]", said)
        if parts.keys() == {"c", "d", "k"} and all(isinstance(one, str) for one in parts.values()):
            return {_HIDDEN: {"d": parts["d"], "k": parts["k"]}}
    values = {name: by_meaning(inner) for name, inner in held.items()}
    return part if all(map(_is, values.values(), held.values())) else values


def pointed(value: Any, pointer: str) -> Any:
    """The part of a value that a JSON Pointer (RFC 6901) names.

    Raises:
        NoSuchPlace: it is no pointer, or leads nowhere.
    """
    if pointer and not pointer.startswith("/"):
        raise NoSuchPlace
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = cast("dict[str, Any]", value)[name]
        elif isinstance(value, list) and _INDEX.fullmatch(name) and int(name) < len(cast("list[Any]", value)):
            value = cast("list[Any]", value)[int(name)]
        else:
            raise NoSuchPlace
    return value


def is_blob(reference: object) -> bool:
    """Whether it says which bytes a large result is, and how many."""
    if not isinstance(reference, dict):
        return False
    sha256, size = (cast("Body", reference).get(name) for name in ("sha256", "size"))
    return isinstance(sha256, str) and bool(_SHA256.fullmatch(sha256)) and type(size) is int and size >= 0
