"""How a call stands, without guessing from words: its contract's status, and whether it took effect."""

from enum import StrEnum
from typing import Any

from aetheris.protocol.fold.state import KeyState, KeyStatus, PlanEntry, Settled
from aetheris.protocol.messages.event_values import RejectReason
from aetheris.protocol.plan.graph import EffectClass
from aetheris.protocol.planning.contract import TERMINAL, ContractStatus


class HasEffect(StrEnum):
    """What is known of a call's effect."""

    NONE = "none"
    CONFIRMED = "confirmed"
    POSSIBLE = "possible"


MAX_TEXT_CHARS = 1024 * 1024
SHOWN_CHARS = 1_000
"""Of what was refused, or of why a call failed, so much is told."""


def text_of(text: str) -> str:
    """What any log can hold: no lone surrogates, not without end."""
    return text[:MAX_TEXT_CHARS].encode("utf-8", "replace").decode()


def error_told(reason: str | None, detail: str | None) -> str:
    """Why a call has no result, as a model is told."""
    why = f"{reason}: {detail}" if detail else reason or "failed"
    return text_of(why[:SHOWN_CHARS])


def structured(entry: PlanEntry, state: KeyState, status: ContractStatus, error: str | None) -> dict[str, Any]:
    """What a model is told of a call, and guesses nothing of: {outcome, has_effect, duplicate_of, error_message}."""
    return {
        "outcome": status.value if status in TERMINAL else None,
        "has_effect": has_effect(entry, state).value,
        "duplicate_of": state.duplicate_of.model_dump() if state.duplicate_of is not None else None,
        "error_message": error,
    }


def has_effect(entry: PlanEntry, state: KeyState) -> HasEffect:
    """Whether the call has taken effect; what is not known is possible."""
    if entry.effect_class is EffectClass.PURE:
        return HasEffect.NONE
    if state.outcome is Settled.SUCCESS:
        return HasEffect.CONFIRMED
    nothing = state.sure if state.status is KeyStatus.SETTLED else not state.unresolved
    return HasEffect.NONE if nothing else HasEffect.POSSIBLE


def step_status(state: KeyState, *, over: bool = False) -> ContractStatus:
    """Where the execution contract of a key stands (docs/execution-contract.md); `over`: its job has ended."""
    if state.status is KeyStatus.SETTLED:
        return ended_status(state.outcome, state.reason)
    if over and state.status is KeyStatus.NONE and _was_asked_for(state):
        return ContractStatus.CANCELLED
    if state.status is KeyStatus.PARKED or state.is_asking:
        return ContractStatus.WAITING
    if state.status is KeyStatus.NONE:
        return ContractStatus.WAITING if _was_asked_for(state) else ContractStatus.PENDING
    return ContractStatus.RUNNING


def _was_asked_for(state: KeyState) -> bool:
    return state.requested is not None or state.is_waiting


def ended_status(outcome: Settled | None, reason: str | None) -> ContractStatus:
    """Where the contract of a call stands that has settled so."""
    if outcome is Settled.SUCCESS:
        return ContractStatus.COMPLETED
    if outcome is Settled.FAILED:
        return ContractStatus.CANCELLED if reason == RejectReason.CANCELLED else ContractStatus.FAILED
    gone = (RejectReason.CANCELLED.value, RejectReason.EXPIRED.value)
    return ContractStatus.CANCELLED if reason in gone else ContractStatus.REJECTED
