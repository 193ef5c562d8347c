"""A job whose records are made by hand, for tests of what is told from them: looked up, approved, paid back."""

from datetime import UTC, datetime, timedelta
from typing import Any

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.event_values import Decision
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectKind
from tests.testkit import histories as h

BORN = datetime(2026, 1, 1, tzinfo=UTC)
PLAN = h.graph(
    {"id": "lookup", "tool": "find", "args": {"order": "o-1"}},
    {"id": "pay", "tool": "refund", "args": {"amount": {"$ref": "lookup#/amount"}}},
    find={"effect_class": "pure"},
    refund={"irreversible": True},
)


def records(*events: Event) -> list[Record]:
    """In log order, a second apart, at every third offset."""
    found: list[Record] = []
    for number, event in enumerate(events):
        time = (BORN + timedelta(seconds=number)).isoformat()
        made = draft(Topic.JOBS_EVENTS, event, key=h.JOB, id=f"e{number}", source="test", time=time)
        found.append(Record(made.topic, 0, 3 * number, 0, made.key, made.headers, made.value))
    return found


def committed(node: str, key: str, result: Any, kind: EffectKind = EffectKind.TOOL) -> ev.CommandCommitted:
    return ev.CommandCommitted(
        job_id=h.JOB,
        node_id=node,
        command_id=node,
        idempotency_key=key,
        kind=kind,
        input_hash="i",
        output_hash=digest(result),
    )


def node_finished(node: str, index: int, result_type: str, result: Any) -> ev.NodeFinished:
    return ev.NodeFinished(
        job_id=h.JOB,
        node_id=node,
        step_index=index,
        attempt=1,
        result_type=result_type,
        output_hash=digest(result),
    )


def refunded(amount: Any = 250, external_id: str | None = "re_123") -> list[Event]:
    """A job that looks an order up and pays it back, after a human's yes."""
    found, paid = {"amount": amount}, {"paid": True}
    order, args = {"order": "o-1"}, {"amount": amount}
    pay: dict[str, Any] = {"args": args, "tool": "refund"}
    allowed = ev.ApprovalDecided(
        job_id=h.JOB,
        node_id="pay",
        idempotency_key=h.key_of("pay", args, "refund"),
        args_hash=args_hash(args),
        tool_version="1",
        rule="ask-first",
        decision=Decision.APPROVE,
        approver="alice",
        comment="looks right",
    )
    done = h.finished("pay", "n2", result=paid, **pay).model_copy(update={"external_id": external_id})
    events: list[Event] = [
        h.created(),
        h.planned(PLAN),
        h.started("lookup", "n1", args=order, tool="find"),
        h.finished("lookup", "n1", result=found, args=order, tool="find"),
        committed("lookup", h.key_of("lookup", order, "find"), found),
        node_finished("lookup", 0, "success", found),
        allowed,
        h.started("pay", "n2", **pay),
        done,
        committed("pay", h.key_of("pay", args, "refund"), paid),
        node_finished("pay", 1, "side_effect_committed", paid),
        ev.JobCompleted(job_id=h.JOB, result=paid),
    ]
    return events
