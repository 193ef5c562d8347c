"""A job's events as rows of a timeline: what happened, to which step, in a few words; and the points that matter."""

from collections.abc import Mapping
from typing import Any, cast

from aetheris.console.core.visible_text import exact

_LONGEST = 300
"""Characters of a row's words; the event's own page has all of it."""
_WORDS = {
    "job_created": "created",
    "plan_generated": "a plan, revision {revision}",
    "decision_snapshot": "the model decided",
    "policy_allowed": "the rule {rule} allows it",
    "approval_requested": "asks a person, by the rule {rule}",
    "approval_voted": "{approver} says yes",
    "approval_decided": "{approver}: {decision}",
    "tool_invocation_started": "a try begins, on {worker_id}, token {token}",
    "tool_invocation_finished": "{outcome}, as {via} says",
    "retry_scheduled": "is tried again, not before {due_at}",
    "invocation_in_doubt": "in doubt: {error_class}",
    "invocation_probed": "asked the external system: {answer}",
    "invocation_parked": "parked, only a person can tell: {reason}",
    "invocation_reopened": "may be tried again, by token {next_token}, as {by} says",
    "invocation_cancel_requested": "{by} asks to cancel the step",
    "worker_ended": "{worker_id} has ended, as its {how} shows",
    "node_finished": "ends: {result_type}",
    "step_compensated": "undoes {compensates}",
    "signal_received": "the signal {correlation_key}",
    "invocation_rejected": "rejected: {reason}",
    "effect_confirmed": "the external system confirms it",
    "confirmation_failed": "the external system does not confirm it",
    "job_waiting": "waits: {wait_type}",
    "wait_completed": "the wait is over",
    "job_paused": "paused by {by}",
    "job_resumed": "resumed by {by}",
    "job_frozen": "frozen",
    "job_unfrozen": "frozen no more",
    "cancel_requested": "{by} asks to cancel",
    "job_stopping": "stops: {reason}",
    "job_completed": "completed",
    "job_failed": "failed: {error}",
    "job_cancelled": "cancelled",
    "job_sealed": "sealed",
    "violation_found": "a violation: {rule}",
}
_MARKS = {
    "invocation_in_doubt": "doubt",
    "invocation_parked": "doubt",
    "invocation_reopened": "doubt",
    "worker_ended": "doubt",
    "invocation_rejected": "bad",
    "job_failed": "bad",
    "violation_found": "bad",
    "confirmation_failed": "bad",
    "approval_requested": "person",
    "approval_decided": "person",
    "approval_voted": "person",
    "job_completed": "good",
    "job_sealed": "good",
}


def timeline_row(event: Mapping[str, Any]) -> list[Any]:
    """[seq, time, type, step, words, mark] of an event as the API has it, every text visible (`exact`)."""
    kind = str(event.get("type", ""))
    found: Any = event.get("data")
    data = cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}
    step = str(data.get("node_id") or "")
    mark = "void" if event.get("void") else _mark(kind, data)
    seq = int(str(event.get("seq", 0)))
    texts = (str(event.get("time", "")), kind, step, _words(kind, data))
    return [seq, *(exact(text.replace("\n", " "))[:_LONGEST] for text in texts), mark]


def _words(kind: str, data: Mapping[str, Any]) -> str:
    form = _WORDS.get(kind, "")
    return form.format_map(_Said(data)).rstrip(": ") if form else ""


def _mark(kind: str, data: Mapping[str, Any]) -> str:
    if kind == "tool_invocation_finished":
        return "good" if data.get("outcome") == "success" else "bad"
    return _MARKS.get(kind, "")


class _Said(dict[str, Any]):
    """An event's fields; what it doesn't say is left out."""

    def __missing__(self, name: str) -> str:
        return ""
