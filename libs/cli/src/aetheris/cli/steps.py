"""A job's events as lines for humans: a line for each step as it starts, ends, waits, or can't go on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aetheris.sdk.client import JobEvent

_FINISHED = {
    "success": "done",
    "compensatable_failure": "done in part",
    "retryable_failure": "not executed",
    "permanent_failure": "failed",
}


@dataclass(frozen=True, slots=True)
class StepLine:
    """What happened to a step; `attempt` is what the external system sees, from 0."""

    node: str
    tool: str
    state: str
    attempt: int | None = None
    detail: str = ""

    def __str__(self) -> str:
        attempt = "" if self.attempt is None else f"attempt {self.attempt}"
        return f"{self.node:<16} {self.tool:<20} {self.state:<14} {attempt:<10} {self.detail}".rstrip()


class Steps:
    """Folds a job's events into lines; remembers which tool a node calls and its last attempt."""

    def __init__(self) -> None:
        self._tools: dict[str, str] = {}
        self._invocations: dict[str, int] = {}

    def line(self, event: JobEvent) -> StepLine | None:
        """The line that an event is worth; None for what concerns no step."""
        data: Mapping[str, Any] = event.data
        match event.type:
            case "tool_invocation_started":
                return self._started(data)
            case "tool_invocation_finished":
                return self._finished(data)
            case "invocation_rejected":
                return self._about(data, "rejected", _joined(data, "reason", "detail"))
            case "invocation_in_doubt":
                return self._about(data, "in doubt", _joined(data, "error_class"))
            case "invocation_probed":
                return self._about(data, "probed", f"the external system says: {data.get('answer', '')}")
            case "invocation_parked":
                return self._about(data, "parked", f"{data.get('reason', '')}; `aetheris resolve` settles it")
            case "invocation_reopened":
                return self._about(data, "reopened", f"by {data.get('by', '')}")
            case "retry_scheduled":
                return self._about(data, "waits", f"next try at {data.get('due_at', '')}")
            case "approval_requested":
                return self._about(data, "waits", f"for approval: `aetheris approve {_text(data, 'job_id')} --as …`")
            case "job_waiting":
                return self._waiting(data)
            case "approval_voted":
                return self._about(data, "voted", f"yes by {data.get('approver', '')}; others must say it, too")
            case "resolution_voted":
                text = f"{_text(data, 'verdict')} by {data.get('by', '')}; others must say it, too"
                return self._about(data, "voted", text)
            case "approval_decided":
                return self._about(data, _text(data, "decision"), f"by {data.get('approver', '')}")
            case "step_compensated":
                return StepLine(_text(data, "compensates"), "", "compensated", None, f"by {data.get('node_id', '')}")
            case "job_paused" | "job_resumed":
                text = f"by {_joined(data, 'by', 'reason')}"
                return StepLine("job", "", event.type.removeprefix("job_"), None, text)
            case "job_frozen" | "job_unfrozen":
                named = " ".join(f"{kind} {name}" for kind, name in data.get("scope", {}).items())
                text = f"{named}, by {_joined(data, 'by', 'reason')}"
                return StepLine("job", "", event.type.removeprefix("job_"), None, text)
            case "cancel_requested" | "job_stopping":
                return StepLine(
                    "job", "", event.type.removeprefix("job_").replace("_", " "), None, _text(data, "reason")
                )
            case _:
                return None

    def _started(self, data: Mapping[str, Any]) -> StepLine:
        """A try declared itself; it runs only if its record came first."""
        node = _text(data, "node_id")
        self._tools[node] = _text(data, "tool_name")
        self._invocations[node] = int(data.get("attempt_id", 0))
        return self._about(data, "started", _text(data, "external_key"))

    def _waiting(self, data: Mapping[str, Any]) -> StepLine | None:
        """What it waits for, and who ends that; an approval has a line of its own."""
        job, key, until = (_text(data, name) for name in ("job_id", "correlation_key", "due_at"))
        text = {
            "signal": f"for a signal: `aetheris signal {job} {key}`",
            "human": f"for an answer: `aetheris approvals`, then `aetheris approve {job} --answer …`",
            "timer": f"until {until}",
            "duplicate": f"for an equal call that is under way: {key}",
            "executor": f"for an executor that serves {key.partition('#')[0]}: none does",
            "resolve": f"for a word: failed and not sure: `aetheris cancel {job}`, with or without --compensate",
            "confirmation": f"for a word: what it did is not confirmed: `aetheris signal {job} {key}`",
        }.get(_text(data, "wait_type"))
        if text is None:
            return None
        return StepLine(_text(data, "node_id") or "job", "", "waits", None, text)

    def _finished(self, data: Mapping[str, Any]) -> StepLine | None:
        outcome = _text(data, "outcome")
        via = _text(data, "via")
        how = "" if via in ("", "executor") else f"via {via}"
        reason = "" if outcome == "success" else _text(data, "error")
        parts = (_text(data, "external_id"), how, reason)
        return self._about(data, _FINISHED.get(outcome, outcome), "  ".join(part for part in parts if part))

    def _about(self, data: Mapping[str, Any], state: str, detail: str) -> StepLine:
        node = _text(data, "node_id")
        return StepLine(node, self._tools.get(node, ""), state, self._invocations.get(node), detail)


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return "" if value is None else str(value)


def _joined(data: Mapping[str, Any], *names: str) -> str:
    return ": ".join(text for name in names if (text := _text(data, name)))
