"""Values of enumerations that a newer version writes (docs/events.md, "Values of a newer version").

What a rule decides on is closed: whoever does not know a value of it does not know the record, and its job waits.
What only tells something is open, and read as text.
"""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import ValidationError, WithJsonSchema

from aetheris.protocol.plan.forms import FieldType
from aetheris.protocol.plan.graph import DuplicateScope, EffectClass, Kind, OnInDoubt

_UNKNOWN = frozenset({"enum", "literal_error"})
"""The errors of a model that refuses a value of an enumeration."""

_NODE: Mapping[tuple[str, ...], frozenset[str]] = {
    ("kind",): frozenset(Kind),
    ("form", "fields", "[]", "type"): frozenset(get_args(FieldType)),
}
_PIN: Mapping[tuple[str, ...], frozenset[str]] = {
    ("effect_class",): frozenset(EffectClass),
    ("on_in_doubt",): frozenset(get_args(OnInDoubt)),
    ("duplicate_scope",): frozenset(get_args(DuplicateScope)),
}
CLOSED_PARTS: Mapping[str, Mapping[tuple[str, ...], frozenset[str]]] = {
    "plan_generated": {
        **{(graph, "nodes", "[]", *path): known for graph in ("task_graph", "diff") for path, known in _NODE.items()},
        **{(graph, "tools", "{}", *path): known for graph in ("task_graph", "diff") for path, known in _PIN.items()},
    },
    "call_planned": {("entry", *path): known for path, known in _NODE.items()},
}
"""Of what an event's model takes as any JSON: where a closed value stands ([]: in each of a list, {}: of an object)."""


def open_to(*known: str) -> WithJsonSchema:
    """Describes a text that is one of these, or another that a newer version writes."""
    return WithJsonSchema({"anyOf": [{"enum": list(known), "type": "string"}, {"type": "string"}]})


def refused_value(error: ValidationError) -> str | None:
    """Where a model found a text that is none of an enumeration's; None where something else is wrong alone."""
    for one in error.errors(include_url=False, include_context=False):
        if one["type"] in _UNKNOWN and isinstance(one["input"], str):
            return ".".join(map(str, one["loc"]))
    return None


def unknown_part(event_type: str, body: object) -> str | None:
    """Where in a plan, or a planned call, stands a value that this version does not know; None: nowhere.

    Args:
        event_type: one of those in CLOSED_PARTS.
        body: the event, as it is read.
    """
    for name, below in _BELOW[event_type].items():
        value = getattr(body, name, None)
        found = None if value is None else _unknown(below, (value,), (name,))
        if found is not None:
            return found
    return None


def _grouped(places: Mapping[tuple[str, ...], frozenset[str]]) -> dict[str, Any]:
    """By the steps of their paths, those that several begin with once; at a path's end stands what is known."""
    found: dict[str, Any] = {}
    for path, known in places.items():
        at = found
        for step in path[:-1]:
            at = at.setdefault(step, {})
        at[path[-1]] = known
    return found


_BELOW = {name: _grouped(places) for name, places in CLOSED_PARTS.items()}


def _unknown(below: Mapping[str, Any], values: Sequence[Any], path: tuple[str, ...]) -> str | None:
    """The same of all that stands at one place."""
    for step, further in below.items():
        within: list[Any] = []
        for value in values:
            if step == "[]":
                within += value if type(value) is list else ()
            elif type(value) is not dict:
                continue
            elif step == "{}":
                within += value.values()
            elif step in value:
                within.append(value[step])
        if not within:
            continue
        here = *path, step
        if isinstance(further, frozenset):
            if any(type(value) is str and value not in further for value in within):
                return ".".join(here)
        elif (found := _unknown(further, within, here)) is not None:
            return found
    return None
