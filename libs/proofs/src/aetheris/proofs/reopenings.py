"""What a call may be reopened on without a person: its class, or a "not found" that nothing can follow any more."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from aetheris.proofs.gate import reopening_of
from aetheris.proofs.records import Body, Fact, Violation, violation
from aetheris.proofs.validity import Validity

UNSTATED_TIMEOUT_S = 30.0
"""Of a pin that leaves its timeout out."""

_ROUNDING_S = 0.001
"""To which the ledger says how long it waited."""


def unproven_reopenings(validity: Validity) -> Iterator[Violation]:
    """A call is reopened by policy if a repeat does no harm, by a probe if nothing can act or arrive any more."""
    for key, starts in validity.valid.items():
        for start in starts:
            reopened = _reopening(validity, start)
            if reopened is not None and not _is_founded(validity, start, reopened):
                yield violation(
                    "unproven_reopening",
                    reopened,
                    f"key {key} is reopened, and try {start.invocation_id} may yet take effect",
                )


def _reopening(validity: Validity, start: Fact) -> Fact | None:
    """The record that reopened a try's key, if it was open, and if not the try itself did."""
    end = validity.handover(start)
    fact = validity.history.facts[end.at] if end is not None else None
    if fact is None or fact.type != "invocation_reopened":
        return None
    return fact if validity.settlement(start.key, fact.at) is None else None


def _is_founded(validity: Validity, start: Fact, reopened: Fact) -> bool:
    tool = validity.planned(start).tool
    effect_class = tool.get("effect_class")
    if reopened.text("by") == "human":
        return bool(reopening_of(reopened).by)  # whether he may say so is for the gate
    if reopened.text("by") == "probe":
        return effect_class == "probeable" and _is_absent(validity, start, reopened, settles_within_s(tool))
    return not tool or effect_class in ("pure", "idempotent")


def _is_absent(validity: Validity, start: Fact, reopened: Fact, bound_s: float) -> bool:
    """Not found under the try's own key, by a question that was asked long enough after it could act no more."""
    ended = validity.end_of(start)
    answers = validity.history.probes.get((start.key, start.invocation_id), ())
    return (
        ended is not None
        and _asked_after_s(reopened) >= bound_s - _ROUNDING_S
        and any(ended < fact.at < reopened.at and _says_no(fact, start) for fact in answers)
    )


def _says_no(answer: Fact, start: Fact) -> bool:
    return answer.text("answer") == "not_found" and answer.text("external_key") == start.text("external_key") != ""


def _asked_after_s(reopened: Fact) -> float:
    """How long after the end the question was sent, by the ledger's clock; as never where it doesn't say."""
    named = reopened.body.get("evidence")
    parts = cast("list[object]", named) if isinstance(named, list) else []
    reported = (cast("Mapping[str, Any]", part).get("asked_after_s") for part in parts if isinstance(part, dict))
    return max((seconds(value, -1.0) for value in reported), default=-1.0)


def settles_within_s(tool: Body) -> float:
    """How long a request may be under way: as its pin states, else its timeout."""
    return seconds(tool.get("settles_within_s"), seconds(tool.get("timeout_s"), UNSTATED_TIMEOUT_S))


def seconds(value: object, otherwise: float) -> float:
    """A number as it is; anything else, or what is not finite, counts as `otherwise`."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else otherwise
