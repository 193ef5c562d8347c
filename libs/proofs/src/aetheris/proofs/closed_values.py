"""Values that rules decide on: whoever does not know one does not know what the record says."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

_ENDS = ("success", "compensatable_failure", "retryable_failure", "permanent_failure")
_SAID_BY = ("executor", "catch_up", "probe", "late", "human", "ledger")
_NODE: Mapping[str, Collection[str]] = {
    "kind": ("tool", "llm", "human", "wait", "timer", "time", "random", "workflow"),
    "form.fields.[].type": (
        *("text", "textarea", "select", "multiselect", "radio", "checkbox", "number", "slider", "date", "datetime"),
        "boolean",
    ),
}
_PIN: Mapping[str, Collection[str]] = {
    "effect_class": ("pure", "idempotent", "probeable", "opaque"),
    "on_in_doubt": ("park", "fail"),
    "duplicate_scope": ("job", "session", "tenant"),
}
_GRAPHS = ("task_graph", "diff")

CLOSED: Mapping[str, Mapping[str, Collection[str]]] = {
    "job_created": {
        "options.on_in_doubt": ("park", "fail"),
        "options.confirmation": ("strict", "warn", "human_in_loop"),
        "brief.planning": ("agent", "graph"),
        "continues.settled.[].verdict": ("happened", "not_executed"),
    },
    "plan_generated": {
        **{f"{graph}.nodes.[].{path}": known for graph in _GRAPHS for path, known in _NODE.items()},
        **{f"{graph}.tools.{{}}.{path}": known for graph in _GRAPHS for path, known in _PIN.items()},
    },
    "call_planned": {f"entry.{path}": known for path, known in _NODE.items()},
    "tool_invocation_finished": {"outcome": _ENDS, "via": _SAID_BY},
    "policy_allowed": {"repeats": ("allow",)},
    "approval_decided": {"decision": ("approve", "edit", "reject")},
    "invocation_probed": {"answer": ("found", "not_found", "unknown")},
    "invocation_reopened": {"by": ("probe", "policy", "human")},
    "resolution_voted": {"verdict": ("happened", "not_executed", "accepted")},
    "confirmation_failed": {"reason": ("drift", "unknown")},
}
"""By type of event: where such a value stands ([]: in each of a list, {}: of an object), and what it may be."""

_CLOSED = {
    name: tuple((path.split("."), frozenset(known)) for path, known in places.items())
    for name, places in CLOSED.items()
}


def unknown_value(event_type: str, body: Mapping[str, Any]) -> str | None:
    """Where in a record of a type stands a text that is none of those that are known there; None: nowhere."""
    for path, known in _CLOSED.get(event_type, ()):
        if len(path) == 1:
            value = body.get(path[0])
            if type(value) is str and value not in known:
                return path[0]
        elif any(type(value) is str and value not in known for value in _at(body, path)):
            return ".".join(path)
    return None


def _at(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """What stands at a path, wherever there is something."""
    if not path:
        yield value
        return
    within: Sequence[Any] = ()
    if path[0] == "[]":
        within = cast("list[Any]", value) if isinstance(value, list) else ()
    elif isinstance(value, dict):
        said = cast("dict[str, Any]", value)
        within = list(said.values()) if path[0] == "{}" else [said[path[0]]] if path[0] in said else ()
    for one in within:
        yield from _at(one, path[1:])
