"""JSON as it was sent: numbers keep the text that they came with, and never pass through a float."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class NotExact(ValueError):
    """It is no JSON, or no number as JSON has it."""


class NumberText(str):
    """A number, by its own text; never equal to a text."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NumberText) and str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    @classmethod
    def of(cls, text: str) -> "NumberText":
        """Raises NotExact."""
        if not _NUMBER.fullmatch(text):
            raise NotExact("must be a number, such as 12 or 0.5")
        return cls(text)


def exactly_read(text: str | bytes) -> Any:
    """A JSON text; its numbers are `NumberText`. Raises NotExact."""
    try:
        return json.loads(text, parse_int=NumberText, parse_float=NumberText, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise NotExact("is no JSON") from None


def is_plain_text(value: Any) -> bool:
    """Whether it is a text that nobody takes for a number, a list or another value, so that it needs no quotes."""
    if not isinstance(value, str) or isinstance(value, NumberText):
        return False
    try:
        exactly_read(value)
    except NotExact:
        return True
    return False


def exactly_written(value: Any, *, indent: int | None = None) -> str:
    """A value of `exactly_read` as JSON, with each number as it came."""
    return "".join(_parts(value, indent, 0))


def _no_number(name: str) -> Any:
    raise NotExact(name)


def _parts(value: Any, indent: int | None, depth: int) -> list[str]:
    if isinstance(value, NumberText):
        return [str(value)]
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        inner = [[f"{_text(name)}: ", *_parts(one, indent, depth + 1)] for name, one in members.items()]
        return _joined("{", inner, "}", indent, depth)
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = cast("Sequence[Any]", value)
        return _joined("[", [_parts(one, indent, depth + 1) for one in items], "]", indent, depth)
    return [_text(value)]


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _joined(opens: str, inner: Sequence[Sequence[str]], ends: str, indent: int | None, depth: int) -> list[str]:
    if not inner:
        return [opens + ends]
    between, before_end = ", ", ""
    if indent is not None:
        between, before_end = ",\n" + " " * indent * (depth + 1), "\n" + " " * indent * depth
    found = [opens, between.removeprefix(",") if indent is not None else ""]
    for number, parts in enumerate(inner):
        found += [between, *parts] if number else parts
    return [*found, before_end, ends]
