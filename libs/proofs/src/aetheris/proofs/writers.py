"""Who writes which event, and by what it is known (docs/adr/0009-signed-records.md)."""

from collections.abc import Mapping

from aetheris.proofs.records import Body

SIGNED_BY: Mapping[str, str] = {
    "job_created": "planner",
    "plan_generated": "planner",
    "cancel_requested": "planner",
    "job_paused": "planner",
    "job_resumed": "planner",
    "job_stopping": "planner",
    "job_completed": "planner",
    "job_failed": "planner",
    "job_cancelled": "planner",
    "birth_repeated": "planner",
    "policy_allowed": "ledger",
    "approval_requested": "ledger",
    "approval_voted": "ledger",
    "approval_decided": "ledger",
    "resolution_voted": "ledger",
    "invocation_rejected": "ledger",
    "invocation_cancel_requested": "ledger",
    "retry_scheduled": "ledger",
    "invocation_parked": "ledger",
    "invocation_reopened": "ledger",
    "worker_ended": "ledger",
    "job_waiting": "ledger",
    "wait_completed": "ledger",
    "signal_received": "ledger",
    "job_frozen": "ledger",
    "job_unfrozen": "ledger",
    "workflow_accepted": "ledger",
    "invocation_probed": "prober",
    "effect_confirmed": "prober",
    "confirmation_failed": "prober",
    "violation_found": "auditor",
    "job_sealed": "auditor",
}
"""Event type → the service whose signature it must have; `signer` tells waits and doubts apart."""

FOLLOWING = frozenset(
    {
        *("decision_snapshot", "node_finished", "state_checkpointed", "step_compensated"),
        *("tool_invocation_started", "command_committed", "state_changed"),
    }
)
"""Event types that nobody signs, whatever they say: the rules of a history check them."""

SIGNING = frozenset({"planner", "ledger", "prober", "auditor"})
"""The services whose signatures are asked for."""

PLANNERS_WAITS = frozenset({"upgrade", "resolve"})
OWN_WORD = frozenset({"executor", "late", "catch_up"})
"""Ends that are known by the try's own word, also where the ledger carries it."""


_ENDS: Mapping[str, frozenset[str]] = {
    "executor": frozenset({"success", "compensatable_failure", "retryable_failure", "permanent_failure"}),
    "late": frozenset({"success", "compensatable_failure", "retryable_failure", "permanent_failure"}),
    "catch_up": frozenset({"success", "compensatable_failure"}),
    "probe": frozenset({"success", "compensatable_failure"}),
    "human": frozenset({"success", "compensatable_failure", "permanent_failure"}),
    "ledger": frozenset({"permanent_failure"}),
}
"""By whom it was learnt how a call ended → what he can know."""


def is_nobodys(event_type: str, body: Body) -> bool:
    """Whether it is an end of a call that nobody may say so."""
    if event_type != "tool_invocation_finished":
        return False
    via, outcome = body.get("via"), body.get("outcome")
    return not isinstance(via, str) or outcome not in _ENDS.get(via, ())


def signer(event_type: str, body: Body) -> str | None:
    """The service that must have signed an event that says this; None where no signature is asked for."""
    if event_type == "tool_invocation_finished":
        return None if body.get("via") in OWN_WORD else "ledger"
    if event_type == "invocation_in_doubt":
        return None if body.get("returned") is True or body.get("word") is not None else "ledger"
    if event_type in ("job_waiting", "wait_completed") and body.get("wait_type") in PLANNERS_WAITS:
        return "planner"
    return SIGNED_BY.get(event_type)
