"""Values of enumerations that a newer version writes (docs/events.md, "Values of a newer version").

What a rule decides on is closed: whoever does not know a value of it does not know the record, and its job waits.
What only tells something is open, and read as text.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast, get_args

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
    for path, known in CLOSED_PARTS[event_type].items():
        for value in _at(getattr(body, path[0], None), path[1:]):
            if isinstance(value, str) and value not in known:
                return ".".join(path)
    return None


def _at(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """What stands at a path, wherever there is something."""
    if not path:
        yield value
        return
    step, rest = path[0], path[1:]
    within: Sequence[Any] = ()
    if step == "[]":
        within = cast("list[Any]", value) if isinstance(value, list) else ()
    elif isinstance(value, dict):
        said = cast("dict[str, Any]", value)
        within = tuple(said.values()) if step == "{}" else (said[step],) if step in said else ()
    for one in within:
        yield from _at(one, rest)
