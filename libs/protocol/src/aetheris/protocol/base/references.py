"""What stands in arguments for a value: `{"$ref": "lookup#/customer/email"}`, an earlier result, resolved by one pure
function, or `{"$ref": "JOB/lookup#/customer/email"}`, one that the job adopted of an earlier one (docs/continue.md);
and `{"$secret": "name@version"}`, which only the executor's memory ever resolves (docs/secrets.md).
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

REF = "$ref"
SECRET = "$secret"  # noqa: S105 - the name of a field

HIDDEN = "$hidden"
_MARKS = frozenset({REF, SECRET, HIDDEN})
_OF = "/"
"""In no job_id, and in no id of a node."""
_NESTS = (dict, list, tuple)
"""What may hold more: plain values are most of what a walk meets, and not worth a step of it."""
_SECRET_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}@[A-Za-z0-9_.-]{1,64}")


class UnresolvedReference(ValueError):
    """A reference whose node has no result yet, or whose pointer leads nowhere in it."""

    code = "unresolved_reference"

    def __init__(self, target: str, rule: str) -> None:
        super().__init__(f"{target}: {rule}")
        self.target = target


class InvalidSecret(ValueError):
    """What names a secret in another form than {"$secret": "name@version"}; `at` is a JSON Pointer."""

    def __init__(self, at: str) -> None:
        super().__init__(f'{at or "/"}: a secret is written {{"{SECRET}": "name@version"}}')
        self.at = at


@dataclass(frozen=True, slots=True)
class SecretUse:
    """A place in some arguments (`at`, JSON Pointer) that stands for a secret, `name` being its name@version."""

    at: str
    name: str


@dataclass(frozen=True, slots=True)
class Reference:
    """A place in some arguments (`at`, JSON Pointer) that stands for a part of a node's result.

    `node_id` of an adopted result is JOB/NODE, which no node is called.
    """

    at: str
    node_id: str
    pointer: str

    @property
    def is_adopted(self) -> bool:
        """Whether the result is one that the job has adopted of an earlier job."""
        return _OF in self.node_id

    @property
    def target(self) -> str:
        """What it says: NODE#/pointer."""
        return f"{self.node_id}#{self.pointer}"


def adopted_name(job_id: str, node_id: str) -> str:
    """What a reference calls a step of an earlier job."""
    return f"{job_id}{_OF}{node_id}"


def are_plain(args: Mapping[str, Any]) -> bool:
    """Whether nothing among arguments nests or is a mark, as in most: then no walk through them finds anything."""
    for name, value in args.items():  # noqa: SIM110  a generator takes twice as long
        if isinstance(value, _NESTS) or name in _MARKS:
            return False
    return True


def references(args: Any) -> Iterator[Reference]:
    """Every reference in the arguments, in document order."""
    return _walk(args, "")


def secrets(args: Any) -> Iterator[SecretUse]:
    """Every secret that the arguments name, in document order.

    Raises:
        InvalidSecret: one that is written in another way.
    """
    return _secrets(args, "")


def with_secrets(args: Any, values: Mapping[str, str]) -> Any:
    """The arguments with each secret replaced by its value; the input is left as it is."""
    if isinstance(args, dict):
        held = cast("dict[str, Any]", args)
        if SECRET in held:
            return values[held[SECRET]]
        return {name: with_secrets(value, values) for name, value in held.items()}
    if isinstance(args, list | tuple):
        return [with_secrets(value, values) for value in cast("list[Any]", args)]
    return args


def is_secret_name(text: str) -> bool:
    """Whether it is name@version, each of [A-Za-z0-9_.-]{1,64}."""
    return _SECRET_NAME.fullmatch(text) is not None


def pointer_part(name: object) -> str:
    """A name or an index as a part of a JSON Pointer, with its slash (RFC 6901 §3)."""
    return "/" + str(name).replace("~", "~0").replace("/", "~1")


def resolve(args: Any, results: Mapping[str, Any], hidden: Container[str] = frozenset()) -> Any:
    """The arguments with every reference replaced by what it points to; the input is left as it is.

    Args:
        hidden: what references may lead to though it is a hidden value: NODE#/pointer.

    Raises:
        UnresolvedReference: no such result, no such place in it, or one that holds a secret or a hidden value, which
            only a plan may.
    """
    target = _target(args)
    if target is not None:
        node_id, _, pointer = target.partition("#")
        if node_id not in results:
            raise UnresolvedReference(target, f"{node_id} has no result")
        value = point(results[node_id], pointer, target)
        held = _withheld(value) if target not in hidden else None
        if held is not None:
            raise UnresolvedReference(target, f"the result holds {held}, which only a plan may")
        return value
    if isinstance(args, dict):
        return {name: resolve(value, results, hidden) for name, value in cast("dict[str, Any]", args).items()}
    if isinstance(args, list | tuple):
        return [resolve(value, results, hidden) for value in cast("list[Any]", args)]
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
            if isinstance(inner, _NESTS):
                yield from _walk(inner, at + pointer_part(name))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(cast("list[Any]", value)):
            if isinstance(inner, _NESTS):
                yield from _walk(inner, f"{at}/{index}")


def _secrets(value: Any, at: str) -> Iterator[SecretUse]:
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        if SECRET in held:
            name = held[SECRET]
            if len(held) != 1 or not isinstance(name, str) or not is_secret_name(name):
                raise InvalidSecret(at)
            yield SecretUse(at, name)
            return
        for key, inner in held.items():
            if isinstance(inner, _NESTS):
                yield from _secrets(inner, at + pointer_part(key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(cast("list[Any]", value)):
            if isinstance(inner, _NESTS):
                yield from _secrets(inner, f"{at}/{index}")


def _withheld(value: Any) -> str | None:
    """What a value holds that stands for another one; only the plan's own arguments may."""
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        named = next((name for name in (SECRET, HIDDEN) if name in held), None)
        inner: Iterable[Any] = () if named is not None else held.values()
    elif isinstance(value, list | tuple):
        named, inner = None, cast("list[Any]", value)
    else:
        return None
    return named or next((found for one in inner if (found := _withheld(one)) is not None), None)
