"""Which arguments of a tool are a person's, by its schema: `"x-personal": subject` (docs/hidden-values.md).

The subject is a JSON Pointer to the argument that names it, or {"name": its name}, which is the same in all calls.
"""

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.hidden_values import LONGEST_SUBJECT, InvalidHidden, hidden_at, hidden_places
from aetheris.protocol.base.references import (
    UnresolvedReference,
    point,
    pointer_part,
    references,
    secrets,
)
from aetheris.protocol.plan.forms import NamedPerson
from aetheris.protocol.plan.graph import Wait

PERSONAL = "x-personal"
NAMED = "name"
"""In a mark: the person's name itself."""
_NOT_BESIDE = ("default", "$ref", "const", "enum", "examples")
"""What would say the value, or that it is elsewhere."""
_FORMS = 'a JSON Pointer ("/customer"), or {"name": "a person"}'


class PersonalRefused(ValueError):
    """A mark that can't be served, or a value that can't be hidden; `at` is a JSON Pointer."""

    def __init__(self, at: str, rule: str) -> None:
        super().__init__(f"{at or '/'}: {rule}")
        self.at = at
        self.rule = rule


@dataclass(frozen=True, slots=True)
class PersonalField:
    """A place in a tool's arguments (JSON Pointer) whose value is a person's."""

    at: str
    subject: str
    """A JSON Pointer; where it is `named`, the name itself."""
    named: bool = False


@dataclass(frozen=True, slots=True)
class PersonalValue:
    """A value in the clear, where it stands, and whose it is."""

    at: str
    subject: str
    """Its name."""
    value: Any


def personal_fields(schema: Mapping[str, Any]) -> tuple[PersonalField, ...]:
    """The marked arguments of a tool, each an argument or a member of one.

    Raises:
        PersonalRefused: a mark stands where none is served, or names no subject.
    """
    return _fields_of(canonical(schema)) if _mentions(schema) else ()


def personal_values(
    schema: Mapping[str, Any], args: Mapping[str, Any], answered: Container[str] = frozenset()
) -> Iterator[PersonalValue]:
    """The marked values of a call's arguments, which are in the clear; without those `answered` in a form.

    Raises:
        PersonalRefused: one that isn't known yet or is hidden already, or whose subject isn't there.
    """
    for field in personal_fields(schema):
        try:
            value = point(args, field.at, field.at)
        except UnresolvedReference:
            if next(references(args), None) is not None and _reaches(args, field.at):
                raise PersonalRefused(field.at, f"{PERSONAL} isn't served there: a reference stands for it") from None
            continue
        if field.at in answered:
            continue
        if any(references(value)) or any(secrets(value)) or hidden_at(value) is not None:
            rule = f"{PERSONAL} isn't served there: something stands for the value, or for a part of it"
            raise PersonalRefused(field.at, rule)
        yield PersonalValue(field.at, subject_of(field, args), value)


def field_at(at: str, who: str | NamedPerson) -> PersonalField:
    """The place of an answer, or of a part of a signal; `who` as its form or its wait says whose it is."""
    return PersonalField(at, who.name, named=True) if isinstance(who, NamedPerson) else PersonalField(at, who)


def signalled_values(wait: Wait, payload: Any) -> list[PersonalValue]:
    """What of a signal's payload, which is in the clear, is to be hidden.

    Raises:
        PersonalRefused: a place that the wait declares isn't there, so that what belongs there may stand elsewhere;
            or the person isn't named.
    """
    found: list[PersonalValue] = []
    for at, who in (wait.personal or {}).items():
        place = field_at(at, who)
        found.append(PersonalValue(at, subject_of(place, payload), _member(payload, at)))
    return found


def is_hidden(wait: Wait, payload: Any) -> bool:
    """Whether all that a wait declares of its signal's payload is hidden there."""
    try:
        return all([one.at for one in hidden_places(_member(payload, at))] == [""] for at in wait.personal or ())
    except (PersonalRefused, InvalidHidden):
        return False


def _member(payload: Any, at: str) -> Any:
    """What stands at a place of a payload that objects alone lead to; raises PersonalRefused."""
    part = payload
    for name in at.split("/")[1:]:
        named = name.replace("~1", "/").replace("~0", "~")
        if not isinstance(part, dict) or named not in part:
            raise PersonalRefused(at, "is personal, and is not there: where there is nothing to say, it is null")
        part = cast("dict[str, Any]", part)[named]
    return part


def _reaches(args: Any, at: str) -> bool:
    """Whether something that stands for a value lies on the way to a place."""
    way = ["/".join(at.split("/")[:count]) for count in range(1, len(at.split("/")) + 1)]
    return any(one.at in way for one in references(args))


def subject_of(field: PersonalField, args: Any) -> str:
    """Whose a place's value is, by the arguments around it; raises PersonalRefused."""
    if field.named:
        return field.subject
    try:
        found = point(args, field.subject, field.subject)
    except UnresolvedReference:
        raise PersonalRefused(field.at, f"its subject, {field.subject}, is not there") from None
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found)
    if not isinstance(found, str) or not 0 < len(found) <= LONGEST_SUBJECT or "\0" in found:
        rule = f"its subject, {field.subject}, is no text of 1 to {LONGEST_SUBJECT} characters, and no number"
        raise PersonalRefused(field.at, rule)
    return found


@lru_cache(maxsize=1_000)
def _fields_of(canonised: bytes) -> tuple[PersonalField, ...]:
    schema = json.loads(canonised)
    found = tuple(_fields(schema, ""))
    if len(found) != _marks(schema):
        rule = f"{PERSONAL} isn't served there: only at an argument, or a member of one, that the schema names in place"
        raise PersonalRefused("", rule)
    places = [one.at for one in found]
    for at in places:
        if any(other != at and at.startswith(other + "/") for other in places):
            raise PersonalRefused(at, f"{PERSONAL} isn't served there: what it is a part of is marked too")
    return found


def _fields(schema: Mapping[str, Any], at: str) -> Iterator[PersonalField]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    for name, inner in cast("dict[str, Any]", properties).items():
        if not isinstance(inner, dict):
            continue
        held, place = cast("dict[str, Any]", inner), at + pointer_part(name)
        below = tuple(_fields(held, place))
        if below and "default" in held:
            raise PersonalRefused(place, f"{PERSONAL} isn't served below a default")
        if PERSONAL in held:
            yield _field(held, place)
        yield from below


def _field(held: Mapping[str, Any], at: str) -> PersonalField:
    subject, named = held[PERSONAL], False
    if isinstance(subject, dict) and cast("dict[str, Any]", subject).keys() == {NAMED}:
        subject, named = cast("dict[str, Any]", subject)[NAMED], True
    if not isinstance(subject, str) or not 0 < len(subject) <= LONGEST_SUBJECT or "\0" in subject:
        raise PersonalRefused(at, f"{PERSONAL} names its subject: {_FORMS}")
    if not named and not subject.startswith("/"):
        rule = f"{PERSONAL} without a slash would be one person, the same in all calls: it is {_FORMS}"
        raise PersonalRefused(at, rule)
    beside = [name for name in _NOT_BESIDE if name in held]
    if beside:
        raise PersonalRefused(at, f"{PERSONAL} isn't served beside {', '.join(beside)}")
    return PersonalField(at, subject, named)


def _mentions(part: Any) -> bool:
    """Whether the keyword stands anywhere, as one or as a name."""
    if isinstance(part, Mapping):
        held = cast("Mapping[str, Any]", part)
        return PERSONAL in held or any(map(_mentions, held.values()))
    return isinstance(part, list | tuple) and any(map(_mentions, cast("list[Any]", part)))


def _marks(part: Any) -> int:
    """How often it stands, as whatever: what is called so is no argument of a tool."""
    if isinstance(part, Mapping):
        held = cast("Mapping[str, Any]", part)
        return (PERSONAL in held) + sum(map(_marks, held.values()))
    return sum(map(_marks, cast("list[Any]", part))) if isinstance(part, list | tuple) else 0
