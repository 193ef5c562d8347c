"""What may be left out of a bundle: whole records, by what they carry or by their type (docs/evidence.md).

A record's leaf is over the hash of its value, so the value can be left out and the sealed tree still be computed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aetheris.proofs.openings import is_hidden
from aetheris.proofs.records import EVENT_TYPES, Body, RawRecord, body_of, event_type

ALWAYS_SHOWN = frozenset({"job_sealed", "key_revoked", "violation_found", "birth_repeated"})
"""What seals, what takes a key's word back, and what the verifier found: without these others would seem better."""
UNRULED = frozenset(
    {
        *("decision_snapshot", "state_changed", "state_checkpointed", "effect_confirmed", "confirmation_failed"),
        *("retry_scheduled", "invocation_cancel_requested", "signal_received"),
    }
)
"""Types that no rule of a job looks at, but for the chain: without them the rest is judged as it would be with them."""
FOR_AUDITOR = frozenset({"decision_snapshot", "state_changed", "effect_confirmed", "signal_received"})
"""What is left out for an auditor: payloads that no rule needs. Drift, which is something found, he sees."""

CLASSES: Mapping[str, frozenset[str]] = {
    "arguments": frozenset(
        {"plan", "goal", "labels", "brief", "task_graph", "diff", "form", "data", "continues", "resource", "entry"}
    ),
    "results": frozenset(
        {
            *("result", "payload", "changes", "resource", "detail", "usage", "external_id", "evidence", "error"),
            *("summary", "diff", "form", "data", "continues"),
        }
    ),
    "reasons": frozenset(
        {
            *("reason", "comment", "evidence", "error", "detail", "summary"),
            *("memory_summary", "reasoning_summary"),
        }
    ),
}
"""Name → the fields that may carry such; later plans, forms and edits carry arguments that are earlier results."""
PLAIN = frozenset(
    {
        *("job_id", "node_id", "idempotency_key", "invocation_id", "caused_by", "certificate", "sig"),
        *("revision", "token", "attempt_id", "external_key", "kind", "tool_name", "tool_version", "args_hash"),
        *("content_key", "occurrence", "rule", "after", "worker_id", "incarnation", "outcome", "via"),
        *("output_hash", "result_ref", "uncalled", "votes", "word", "tenant", "submitted_by", "agent"),
        *("session", "request_hash", "begun", "options", "rules", "installation", "partition", "as_of"),
        *("receipt", "plan_hash", "planner", "planner_version", "command_id", "step_index", "attempt"),
        *("result_type", "duplicate_of", "duration_ms", "state_hash", "input_hash", "observed", "approvers"),
        *("approver_roles", "approver_kinds", "approvals", "self_approval", "signed", "cost", "policy_hash"),
        *("activation", "by", "principal", "due_at", "error_class", "returned", "ask", "answer", "how"),
        *("next_token", "wait_type", "correlation_key", "since", "expires_at", "edited_by", "decision"),
        *("approver", "signature", "verdict", "number", "scope", "at", "ordered", "up_to_revision"),
        *("compensate", "compensated", "compensates", "unfounded", "place", "of", "mode", "event_id", "offset"),
        *("message", "key_id", "root", "birth", "event_count", "tree", "chain", "execution_hash"),
        *("outcome_hash", "sealed_at", "salt", "amends", "consistency", "bodies", "parent", "frontier", "until"),
        *("parent_invocation", "code", "plans", "repeats", "waives", "code_hash", "calls", "call_key"),
    }
)
"""Fields that carry none of these. What is in neither may carry anything."""


class BadRedaction(ValueError):
    """What can't be left out; the message names it."""

    code = "bad_redaction"


@dataclass(frozen=True, slots=True)
class Redaction:
    """Which records are left out. Large results are in no redacted bundle."""

    names: tuple[str, ...]
    """Of `CLASSES`, and of types."""
    audience: str = ""
    """`auditor`, or nobody in particular."""

    @classmethod
    def of(cls, names: Iterable[str], audience: str = "") -> "Redaction":
        """As it is asked for.

        Raises:
            BadRedaction.
        """
        found = tuple(sorted({*names}))
        for name in found:
            if name in ALWAYS_SHOWN:
                raise BadRedaction(f"{name} is always shown")
            if name not in CLASSES and name not in EVENT_TYPES:
                raise BadRedaction(f"{name} is neither {', '.join(CLASSES)} nor a type of records")
        if audience not in ("", "auditor"):
            raise BadRedaction("a bundle is for an auditor, or for nobody in particular")
        if not found and not audience:
            raise BadRedaction("says nothing that is to be left out")
        return cls(found, audience)

    def leaves_out(self, record: RawRecord) -> bool:
        """Whether a record is left out."""
        kind = event_type(record.header("ce_type")).decode(errors="replace")
        if kind in ALWAYS_SHOWN:
            return False
        if kind in self.names or (self.audience and kind in FOR_AUDITOR):
            return True
        classes = [one for one in self.names if one in CLASSES]
        if not classes:
            return False
        body = body_of(record.value)
        return body is None or kind not in EVENT_TYPES or any(_carries(body, CLASSES[one]) for one in classes)

    def to_json(self) -> dict[str, Any]:
        """{for, names}."""
        return {"for": self.audience or None, "names": list(self.names)}


def _carries(body: Body, fields: frozenset[str]) -> bool:
    return any(
        (name in fields or not is_classed(name)) and value not in (None, (), [], {}) and not is_hidden(value)
        for name, value in body.items()
    )


def is_classed(field: str) -> bool:
    """Whether it is known what a field carries."""
    return field in PLAIN or any(field in fields for fields in CLASSES.values())
