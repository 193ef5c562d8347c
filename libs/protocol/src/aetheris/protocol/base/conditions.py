"""Conditions on arguments: `amount>100`, `customer/email=ann@example.org` (docs/replay.md)."""

import json
import re
from dataclasses import dataclass
from typing import Any

from aetheris.protocol.base.references import UnresolvedReference, point

_FORM = re.compile(r"(?P<field>[^<>=!~]+?)\s*(?P<sign><=|>=|!=|=|<|>|~)\s*(?P<value>.*)", re.DOTALL)


class BadCondition(ValueError):
    """What is no condition; `field` says of what."""

    code = "bad_condition"

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Condition:
    """A field of some arguments, compared with a value."""

    field: str
    sign: str
    value: Any

    def holds(self, args: Any) -> bool:
        """Whether it is true; never for a field that isn't there, or where the two can't be compared."""
        try:
            found = point(args, f"/{self.field}", self.field)
        except UnresolvedReference:
            return False
        if self.sign == "~":
            return isinstance(found, str) and str(self.value) in found
        if self.sign in ("=", "!="):
            return _same(found, self.value) is (self.sign == "=")
        return _ordered(found, self.value) and _compare(found, self.sign, self.value)


def condition(text: str) -> Condition:
    """FIELD=VALUE, also with != < <= > >= and ~ (contains); FIELD is a path with slashes, VALUE JSON or bare text.

    Raises:
        BadCondition.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise BadCondition("where", f"{text}: write FIELD=VALUE, or with != < <= > >= ~")
    return Condition(found["field"].strip().lstrip("/"), found["sign"], _value(found["value"]))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _same(one: Any, other: Any) -> bool:
    """JSON's equality: 1 and 1.0 are one, 1 and true are not; text that looks like a number is still text."""
    if isinstance(one, str) != isinstance(other, str):
        return str(one) == str(other) if isinstance(one, str) and not isinstance(other, bool) else False
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _ordered(one: Any, other: Any) -> bool:
    both = (one, other)
    if any(isinstance(item, bool) for item in both):
        return False
    return all(isinstance(item, int | float) for item in both) or all(isinstance(item, str) for item in both)


def _compare(one: Any, sign: str, other: Any) -> bool:
    match sign:
        case "<":
            return one < other
        case "<=":
            return one <= other
        case ">":
            return one > other
        case _:
            return one >= other
