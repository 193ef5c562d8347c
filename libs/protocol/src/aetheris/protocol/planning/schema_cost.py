"""What a schema that was found outside may cost: one whose parts refer to each other in pairs doubles at each step."""

from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote

MOST = 100_000
"""Parts that may be judged of one value, each reference followed; a mebibyte of schema has as many."""


class Unfollowed(ValueError):
    """A reference that leads nowhere in its own document."""


def cost(schema: Mapping[str, Any]) -> int:
    """How many parts a schema comes to where each reference is replaced by what it names; one that recurs counts once.

    Raises:
        Unfollowed.
    """
    return _Cost(schema).of(schema)


class _Cost:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._anchors = {name: part for part in _parts(root) for name in _named(part)}
        self._known: dict[int, int] = {}

    def of(self, part: Any) -> int:
        if not isinstance(part, Mapping | list | tuple):
            return 1
        key = id(cast("object", part))
        if key not in self._known:
            self._known[key] = 1  # what recurs goes down into the value
            self._known[key] = 1 + sum(map(self.of, self._inner(part)))
        return self._known[key]

    def _inner(self, part: Any) -> Iterator[Any]:
        if not isinstance(part, Mapping):
            yield from part
            return
        for name, value in cast("Mapping[str, Any]", part).items():
            yield self._target(value) if name in _REFERENCES and isinstance(value, str) else value

    def _target(self, reference: str) -> Any:
        pointer = unquote(reference.removeprefix("#"))
        if pointer and not pointer.startswith("/"):
            if pointer not in self._anchors:
                raise Unfollowed(reference)
            return self._anchors[pointer]
        found: Any = self._root
        for step in pointer.split("/")[1:]:
            found = _member(found, step.replace("~1", "/").replace("~0", "~"), reference)
        return found


_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_ANCHORS = ("$anchor", "$dynamicAnchor")


def _member(part: Any, step: str, reference: str) -> Any:
    if isinstance(part, Mapping) and step in part:
        return cast("Mapping[str, Any]", part)[step]
    if isinstance(part, list | tuple) and step.isdecimal() and int(step) < len(cast("list[Any]", part)):
        return cast("list[Any]", part)[int(step)]
    raise Unfollowed(reference)


def _parts(part: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(part, Mapping):
        held = cast("Mapping[str, Any]", part)
        yield held
        for inner in held.values():
            yield from _parts(inner)
    elif isinstance(part, list | tuple):
        for inner in cast("list[Any]", part):
            yield from _parts(inner)


def _named(part: Mapping[str, Any]) -> Iterator[str]:
    for anchor in _ANCHORS:
        name = part.get(anchor)
        if isinstance(name, str):
            yield name
