"""What a bundle says of a job for whoever reads it: rows that follow from its records (docs/evidence.md)."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from aetheris.proofs.disclosures import success_of
from aetheris.proofs.history import History
from aetheris.proofs.records import Fact
from aetheris.proofs.validity import Validity

_APPROVALS = frozenset(
    {
        "policy_allowed",
        "approval_requested",
        "approval_voted",
        "approval_decided",
        "resolution_voted",
        "invocation_rejected",
    }
)


def derived(validity: Validity) -> dict[str, Any]:
    """What the records say, for readers: recomputed by whoever checks, so it adds nothing that must be believed."""
    return {
        "ledger": list(_ledger(validity)),
        "approvals": list(_approvals(validity.history)),
        "provenance": _provenance(validity.history),
    }


def _ledger(validity: Validity) -> Iterator[dict[str, Any]]:
    """A row for each try that counted, in log order (docs/evidence.md)."""
    history = validity.history
    for start in history.starts:
        if not validity.is_valid(start):
            continue
        ends = [fact for fact in history.finishes.get((start.key, start.invocation_id), []) if fact.at > start.at]
        success = success_of(history, start)
        yield {
            "invocation_id": start.invocation_id,
            "step_id": start.node,
            "tool_name": start.text("tool_name"),
            "args_hash": start.text("args_hash"),
            "idempotency_key": start.key,
            "external_key": start.text("external_key"),
            "attempt_id": start.body.get("attempt_id"),
            "token": start.body.get("token"),
            "status": "success" if success is not None else _status(history, start, ends),
            "committed": success is not None and _committed(history, success),
            "external_id": success.text("external_id") if success is not None else "",
            "output_hash": success.text("output_hash") if success is not None else "",
        }


def _status(history: History, start: Fact, ends: Sequence[Fact]) -> str:
    named = (start.key, start.invocation_id)
    if ends:
        return "failure"
    if history.reopens.get(named):
        return "in_doubt"
    return "parked" if history.parks.get(named) else "started"


def _committed(history: History, success: Fact) -> bool:
    text = success.text("output_hash")
    return any(commit.text("output_hash") == text for commit in history.commits.get(success.key, []))


def _approvals(history: History) -> Iterator[dict[str, Any]]:
    for fact in history.facts:
        if fact.type in _APPROVALS:
            yield {"event_id": fact.event_id, "offset": fact.offset, "type": fact.type, "says": dict(fact.body)}


def _provenance(history: History) -> dict[str, Any]:
    """Who asked for the job, and what planned it with which tools."""
    created = history.created.body if history.created is not None else {}
    plans = [fact for fact in history.facts if fact.type == "plan_generated" and fact.at in history.plans.effective]
    return {
        "tenant": created.get("tenant"),
        "submitted_by": created.get("submitted_by"),
        "agent": created.get("agent"),
        "request_hash": created.get("request_hash"),
        "plans": [
            {"event_id": fact.event_id}
            | {name: fact.body.get(name) for name in ("revision", "plan_hash", "planner", "planner_version")}
            for fact in plans
        ],
        "decisions": [fact.event_id for fact in history.facts if fact.type == "decision_snapshot"],
        "tools": [_tools(fact) for fact in plans],
    }


def _tools(plan: Fact) -> Any:
    part: Any = plan.body.get("task_graph" if plan.body.get("revision") == 0 else "diff")
    return cast("dict[str, Any]", part).get("tools", {})
