"""How a call stands, without guessing from words: its contract's status, and whether it changed the world."""

from enum import StrEnum
from typing import Any

from aetheris.protocol.fold.state import Entry, KeyState, Settled, St
from aetheris.protocol.messages.events import RejectReason
from aetheris.protocol.plan.graph import EffectClass
from aetheris.protocol.planning.contract import TERMINAL, Status


class HasEffect(StrEnum):
    """What is known of a call's effect on the world."""

    NONE = "none"
    CONFIRMED = "confirmed"
    POSSIBLE = "possible"


def structured(entry: Entry, state: KeyState, status: Status, error: str | None) -> dict[str, Any]:
    """What a model is told of a call, and guesses nothing of: {outcome, has_effect, duplicate_of, error_message}."""
    return {
        "outcome": status.value if status in TERMINAL else None,
        "has_effect": has_effect(entry, state).value,
        "duplicate_of": state.duplicate_of.model_dump() if state.duplicate_of is not None else None,
        "error_message": error,
    }


def has_effect(entry: Entry, state: KeyState) -> HasEffect:
    """Whether the call has changed the world; what is not known is possible."""
    if entry.effect_class is EffectClass.PURE:
        return HasEffect.NONE
    if state.outcome is Settled.SUCCESS:
        return HasEffect.CONFIRMED
    nothing = state.sure if state.st is St.SETTLED else not state.live
    return HasEffect.NONE if nothing else HasEffect.POSSIBLE


def step_status(state: KeyState, *, over: bool = False) -> Status:
    """Where the execution contract of a key stands (docs/execution-contract.md); `over`: its job has ended."""
    if state.st is St.SETTLED:
        return _ended(state)
    if over and state.st is St.NONE and _was_asked_for(state):
        return Status.CANCELLED
    if state.st is St.PARKED or state.is_asking:
        return Status.WAITING
    if state.st is St.NONE:
        return Status.WAITING if _was_asked_for(state) else Status.PENDING
    return Status.RUNNING


def _was_asked_for(state: KeyState) -> bool:
    return state.requested is not None or state.is_waiting


def _ended(state: KeyState) -> Status:
    if state.outcome is Settled.SUCCESS:
        return Status.COMPLETED
    if state.outcome is Settled.FAILED:
        return Status.CANCELLED if state.reason == RejectReason.CANCELLED else Status.FAILED
    gone = (RejectReason.CANCELLED.value, RejectReason.EXPIRED.value)
    return Status.CANCELLED if state.reason in gone else Status.REJECTED
