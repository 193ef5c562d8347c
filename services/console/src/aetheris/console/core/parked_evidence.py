"""What is known of a parked step: its tries, doubts and probes; and where a workflow parted from what it had done."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from aetheris.console.core.timeline_rows import timeline_row

TELLING = (
    *("tool_invocation_started", "tool_invocation_finished", "invocation_in_doubt", "invocation_probed"),
    *("invocation_parked", "invocation_reopened", "workflow_accepted"),
)
"""The types of the events that tell of a step's tries."""
_HEX = frozenset("0123456789abcdef")
MOST_SHOWN = 50
"""The last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartedWorkflow:
    """A workflow's code asks for other calls than those that are recorded."""

    unasked: Sequence[str]
    """Recorded calls that it does not ask for any more."""
    held: Sequence[str]
    """Calls that it asks for instead, which were not made."""
    changed: str
    """A call that it asks for with other arguments, or empty."""
    code: str
    """The hash of the code that did so: what a person may accept; empty where it is not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedEvidence:
    """In log order."""

    moments: Sequence[tuple[Sequence[Any], Any]]
    """(the event's row, what it was said to rest on, or None)."""
    parted: PartedWorkflow | None


def parked_evidence(node_id: str, events: Iterable[Mapping[str, Any]]) -> ParkedEvidence:
    """Of a job's events as the API has them, numbers as texts; void ones say nothing."""
    moments: list[tuple[Sequence[Any], Any]] = []
    parted: PartedWorkflow | None = None
    for event in events:
        found: Any = event.get("data")
        if event.get("void") or not isinstance(found, dict) or event.get("type") not in TELLING:
            continue
        data = cast("Mapping[str, Any]", found)
        if data.get("node_id") != node_id:
            continue
        said: Any = data.get("evidence") or data.get("result")
        moments.append((timeline_row(event), said))
        if event.get("type") in ("tool_invocation_started", "invocation_reopened"):
            parted = None
        parted = _parted(data.get("evidence")) or parted
    return ParkedEvidence(moments=moments[-MOST_SHOWN:], parted=parted)


def _parted(evidence: Any) -> PartedWorkflow | None:
    for said in cast("Sequence[Any]", evidence) if isinstance(evidence, list) else ():
        if isinstance(said, dict) and "unasked" in said:
            return _parted_of(cast("Mapping[str, Any]", said))
    return None


def _parted_of(said: Mapping[str, Any]) -> PartedWorkflow:
    code: Any = said.get("code")
    named = str(cast("Mapping[str, Any]", code).get("hash", "")) if isinstance(code, dict) else ""
    return PartedWorkflow(
        unasked=_names(said.get("unasked")),
        held=_names(said.get("held")),
        changed=str(said.get("changed") or ""),
        code=named if len(named) == 64 and _HEX.issuperset(named) else "",
    )


def _names(found: Any) -> Sequence[str]:
    return [str(one) for one in cast("Sequence[Any]", found)] if isinstance(found, list) else ()
