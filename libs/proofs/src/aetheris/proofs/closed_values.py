"""Values that rules decide on: whoever does not know one does not know what the record says."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

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

_Branches = dict[str, Any]
"""What stands below a part of a path: further parts, and where a path ends, under "", its text and what is known."""


def _branches(places: Mapping[str, Collection[str]]) -> _Branches:
    found: _Branches = {}
    for path, known in places.items():
        at = found
        for part in path.split("."):
            at = at.setdefault(part, {})
        at[""] = path, frozenset(known)
    return found


_FIELDS = {
    name: tuple((path, frozenset(known)) for path, known in places.items() if "." not in path)
    for name, places in CLOSED.items()
}
_BRANCHES = {
    name: _branches({path: known for path, known in places.items() if "." in path}) for name, places in CLOSED.items()
}


def unknown_value(event_type: str, body: Mapping[str, Any]) -> str | None:
    """Where in a record of a type stands a text that is none of those that are known there; None: nowhere."""
    for name, known in _FIELDS.get(event_type, ()):
        value = body.get(name)
        if type(value) is str and value not in known:
            return name
    branches = _BRANCHES.get(event_type)
    return _unknown(branches, [body]) if branches else None


def _unknown(branches: _Branches, values: Sequence[Any]) -> str | None:
    """The same of all that stands at one place; what paths have in common is gone once."""
    for part, below in branches.items():
        if not part:
            path, known = below
            if any(type(value) is str and value not in known for value in values):
                return path
            continue
        if part == "[]":
            within = [one for value in values if type(value) is list for one in value]
        elif part == "{}":
            within = [one for value in values if type(value) is dict for one in value.values()]
        else:
            within = [value[part] for value in values if type(value) is dict and part in value]
        found = _unknown(below, within) if within else None
        if found is not None:
            return found
    return None
