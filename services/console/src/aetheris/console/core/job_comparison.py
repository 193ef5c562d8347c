"""Two jobs beside each other, step by step: what only one has, and what of a step differs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from aetheris.console.core.request_context import changed


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedStep:
    """A step that at least one of them has."""

    node_id: str
    one: Mapping[str, Any] | None
    """As the trace has it; None where the first job has no such step."""
    other: Mapping[str, Any] | None
    changes: Sequence[tuple[str, Any, Any]]
    """(name, in the first, in the second): `tool`, `state`, and each argument as `args.NAME`."""

    @property
    def is_equal(self) -> bool:
        """Whether both have it, with nothing that differs."""
        return self.one is not None and self.other is not None and not self.changes


def compared(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[ComparedStep]:
    """The steps of two traces (GET /jobs/{id}/trace, numbers as texts), in the first job's order, then the rest."""
    first, second = _steps(one), _steps(other)
    return [
        ComparedStep(node_id=name, one=first.get(name), other=second.get(name), changes=_changes(first, second, name))
        for name in [*first, *(name for name in second if name not in first)]
    ]


def arguments_of(step: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of its newest call; empty where there was none."""
    keys = cast("Sequence[Mapping[str, Any]]", step.get("keys") or ())
    found: Any = keys[-1].get("args") if keys else None
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


def _steps(trace: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    steps = cast("Sequence[Mapping[str, Any]]", trace.get("steps") or ())
    return {str(step.get("node_id")): step for step in steps}


def _changes(
    first: Mapping[str, Mapping[str, Any]], second: Mapping[str, Mapping[str, Any]], name: str
) -> list[tuple[str, Any, Any]]:
    if name not in first or name not in second:
        return []
    one, other = first[name], second[name]
    told = [(key, one.get(key), other.get(key)) for key in ("tool", "state") if one.get(key) != other.get(key)]
    return [*told, *((f"args.{at}", was, now) for at, was, now in changed(arguments_of(one), arguments_of(other)))]
