"""References to earlier results, `{"$ref": "lookup#/customer/email"}`: one pure function resolves them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

REF = "$ref"


class UnresolvedReference(ValueError):
    """A reference whose node has no result yet, or whose pointer leads nowhere in it."""

    code = "unresolved_reference"

    def __init__(self, target: str, rule: str) -> None:
        super().__init__(f"{target}: {rule}")
        self.target = target


@dataclass(frozen=True, slots=True)
class Reference:
    """A place in some arguments (`at`, JSON Pointer) that stands for a part of a node's result."""

    at: str
    node_id: str
    pointer: str


def references(args: Any) -> Iterator[Reference]:
    """Every reference in the arguments, in document order."""
    return _walk(args, "")


def resolve(args: Any, results: Mapping[str, Any]) -> Any:
    """The arguments with every reference replaced by what it points to; the input is left as it is.

    Raises:
        UnresolvedReference: no such result, or no such place in it.
    """
    target = _target(args)
    if target is not None:
        node_id, _, pointer = target.partition("#")
        if node_id not in results:
            raise UnresolvedReference(target, f"{node_id} has no result")
        return point(results[node_id], pointer, target)
    if isinstance(args, dict):
        return {name: resolve(value, results) for name, value in cast("dict[str, Any]", args).items()}
    if isinstance(args, list | tuple):
        return [resolve(value, results) for value in cast("list[Any]", args)]
    return args


def point(value: Any, pointer: str, target: str) -> Any:
    """The part of a JSON value that a JSON Pointer (RFC 6901) names."""
    if pointer == "":
        return value
    if not pointer.startswith("/"):
        raise UnresolvedReference(target, "the part after # must be a JSON Pointer")
    for raw in pointer[1:].split("/"):
        value = _step(value, raw.replace("~1", "/").replace("~0", "~"), target)
    return value


def _step(value: Any, name: str, target: str) -> Any:
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        if name in held:
            return held[name]
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        if name.isdecimal() and str(int(name)) == name and int(name) < len(items):
            return items[int(name)]
    raise UnresolvedReference(target, "the result has no such place")


def _target(value: Any) -> str | None:
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        if len(held) == 1 and isinstance(held.get(REF), str):
            return cast("str", held[REF])
    return None


def _walk(value: Any, at: str) -> Iterator[Reference]:
    target = _target(value)
    if target is not None:
        node_id, _, pointer = target.partition("#")
        yield Reference(at, node_id, pointer)
    elif isinstance(value, dict):
        for name, inner in cast("dict[str, Any]", value).items():
            yield from _walk(inner, f"{at}/{name}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(cast("list[Any]", value)):
            yield from _walk(inner, f"{at}/{index}")
