"""Provenance: from what the external system knows back to why it happened (docs/replay.md).

effect ← tries ← approval or policy ← step and the results it used ← plan ← decision ← goal
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aetheris.protocol.base.conditions import BadCondition, Condition, asked_condition
from aetheris.protocol.base.references import adopted_name
from aetheris.protocol.fold.job_log import LoggedEvent, moment_of
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.plan.graph import EffectKind, Node, dependencies
from aetheris.protocol.planning.confirmation import unanswered
from aetheris.protocol.planning.invocation import uses
from aetheris.views.effect_log import answered_by
from aetheris.views.job_history import HistoryEntry, JobHistory

_MOST_CONDITIONS = 10

Tree = dict[str, Any]
"""{what, title, at: {seq, id, type, time, offset} | null, facts, because: [Tree]}"""


def origin(history: JobHistory, row: dict[str, Any]) -> Tree:
    """Why an effect of a job exists; `row` is its line in the effect log."""
    key = row["idempotency_key"]
    moments = history.by_key.get(key, [])
    finished = next((one.logged for one in moments if one.logged.id == row["event_id"]), None)
    known_as = row.get("external_id") or row["external_key"] or f"by {row.get('by')}"
    title = f"{row['tool_name']} {known_as}"
    because = [
        *_permissions(moments),
        *_invocations(moments, row["invocation_id"]),
        *_open(history, row),
        _step(history, row),
    ]
    return _tree("effect", title, finished, dict(row), because)


@dataclass(frozen=True, slots=True)
class EffectFilter:
    """Which effects are looked for."""

    external_id: str | None = None
    """As the external system knows it, or the external key that was sent."""
    tool: str | None = None
    since: datetime | None = None
    where: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, external_id: str | None, tool: str | None, since: str | None, where: Iterable[str]) -> "EffectFilter":
        """As it is written.

        Raises:
            BadCondition: naming what can't be read.
        """
        conditions = tuple(where)
        if len(conditions) > _MOST_CONDITIONS:
            raise BadCondition("where", f"at most {_MOST_CONDITIONS} of them")
        begin = moment_of(since) if since is not None else None
        if since is not None and begin is None:
            raise BadCondition("since", f"{since}: not a time (RFC 3339)")
        return cls(external_id, tool, begin, tuple(asked_condition("where", text) for text in conditions))

    def among(self, history: JobHistory) -> list[dict[str, Any]]:
        """The effects of a job that are wanted, in log order."""
        return [row for row in history.effects.rows if self._takes(history, row)]

    def _takes(self, history: JobHistory, row: dict[str, Any]) -> bool:
        if self.external_id not in (None, row.get("external_id"), row["external_key"]):
            return False
        if self.tool not in (None, row["tool_name"]):
            return False
        written = moment_of(row["created_at"])
        if self.since is not None and (written is None or written < self.since):
            return False
        call = history.calls.get(row["idempotency_key"])
        return all(call is not None and _holds(one, call.args) for one in self.where)


def _holds(condition: Condition, args: Any) -> bool:
    """Never where it can't be said: an argument is missing, or the two can't be compared."""
    try:
        return condition.holds({"args": args})
    except Exception:  # noqa: BLE001  whatever the condition stumbles over
        return False


def planned_by(history: JobHistory, revision: int) -> Tree:
    """A plan revision, and what was asked for."""
    logged = history.plans.get(revision)
    event = logged.event if logged is not None else None
    facts: dict[str, Any] = {"revision": revision}
    if isinstance(event, ev.PlanGenerated):
        facts |= {"plan_hash": event.plan_hash, "planner": event.planner, "planner_version": event.planner_version}
    return _tree("plan", f"revision {revision}", logged, facts, [asked_for(history)])


def decided_by(history: JobHistory, node_id: str) -> Tree | None:
    """What a model's answer asked for, the answer, and the plan; None of a call that no model wanted."""
    answer = answered_by(history.job, node_id) if history.job is not None else None
    logged = history.effects.decisions.get(answer) if answer is not None else None
    return None if logged is None else decision(history, logged)


def asked_for(history: JobHistory) -> Tree:
    """What the job was created with."""
    event = history.created.event if history.created is not None else None
    if not isinstance(event, ev.JobCreated):
        return _tree("goal", "unknown", history.created, {}, [])
    facts: dict[str, Any] = {"submitted_by": event.submitted_by, "tenant": event.tenant}
    facts |= {"agent": event.agent, "session": event.session}
    if event.brief is not None:
        facts |= {"model": event.brief.model, "tools": list(event.brief.tools)}
    title = event.goal if event.goal is not None else f"a plan submitted by {event.submitted_by}"
    if event.continues is not None:
        facts["continues"] = event.continues.job_id
    known = {name: value for name, value in facts.items() if value is not None}
    return _tree("goal", title, history.created, {"job_id": event.job_id, **known}, [])


def decision(history: JobHistory, logged: LoggedEvent) -> Tree:
    """A decision_snapshot, the answer that it is about, and the plan."""
    event = logged.event
    if not isinstance(event, ev.DecisionSnapshot):
        return _tree("decision", "unknown", logged, {}, [planned_by(history, 0)])
    summaries = {"memory_summary": event.memory_summary, "reasoning_summary": event.reasoning_summary}
    facts = {"command_id": event.command_id} | {name: text for name, text in summaries.items() if text is not None}
    made_by = [_used(row) for row in history.effects.rows if row["command_id"] == event.command_id and row["stands"]]
    return _tree("decision", event.goal, logged, facts, [*made_by, planned_by(history, 0)])


def _step(history: JobHistory, row: dict[str, Any]) -> Tree:
    job, node_id = history.job, row["command_id"]
    call = history.calls.get(row["idempotency_key"])
    entry = job.entry(node_id) if job is not None else None
    facts: dict[str, Any] = {"node_id": node_id, "step_index": row["step_index"]}
    if call is not None:
        facts["args"] = call.args
    if job is None or entry is None:
        return _tree("step", node_id, None, facts, [])
    used = set(uses(entry))
    facts["depends_on"] = list(dependencies(entry.node))
    before = [_used(one) for one in history.effects.rows if one["command_id"] in used and one["stands"]]
    adopted = _adopted(history, job, entry.node)
    above = decided_by(history, node_id) or planned_by(history, _revision(job, node_id))
    return _tree("step", node_id, None, facts, [*before, *adopted, above])


def _adopted(history: JobHistory, job: JobState, node: Node) -> Iterator[Tree]:
    """What earlier jobs did, and the step uses; why they did it, their own logs say."""
    known = job.created.continues
    if known is None:
        return
    names = {used.node_id for used in node.adopted}
    names |= {adopted_name(known.job_id, use.ref.partition("#")[0]) for use in known.uses if use.node_id == node.id}
    for one in known.adopted:
        if one.name in names:
            title = " ".join(filter(None, (f"{one.node_id}: {one.tool_name}", one.external_id)))
            facts = {"job_id": one.job_id, "node_id": one.node_id, "output_hash": one.result_hash}
            yield _tree("used", title, history.created, facts, [])


def _revision(job: JobState, node_id: str) -> int:
    entry = job.entry(node_id)
    return entry.revision if entry is not None else 0


def _used(row: dict[str, Any]) -> Tree:
    """An earlier effect, without its own reasons."""
    reported = ev.WaitCompleted if row["kind"] == EffectKind.HUMAN else ev.ToolInvocationFinished
    at = {"seq": row["seq"], "id": row["event_id"], "type": reported.event_type}
    name = f" {row['external_id']}" if "external_id" in row else ""
    names = ("output_hash", "model", "usage", "prompt_hash", "response_hash")
    shown = {name: row[name] for name in names if name in row}
    title = f"{row['command_id']}: {row['tool_name']}{name}"
    return {"what": "used", "title": title, "at": {**at, "time": row["created_at"]}, "facts": shown, "because": []}


def _permissions(moments: list[HistoryEntry]) -> Iterator[Tree]:
    for moment in moments:
        event = moment.logged.event
        if not moment.counts:
            continue
        if isinstance(event, ev.ApprovalVoted):
            known = {"rule": event.rule, "args_hash": event.args_hash}
            yield _tree("vote", f"approve by {event.approver}", moment.logged, known, [])
        elif isinstance(event, ev.ApprovalDecided):
            facts = {"rule": event.rule, "comment": event.comment, "args_hash": event.args_hash}
            known = {name: value for name, value in facts.items() if value is not None}
            yield _tree("approval", f"{event.decision.value} by {event.approver}", moment.logged, known, [])
        elif isinstance(event, ev.PolicyAllowed):
            yield _tree("policy", f"allowed by rule {event.rule}", moment.logged, {"args_hash": event.args_hash}, [])


def _invocations(moments: list[HistoryEntry], invocation_id: str) -> Iterator[Tree]:
    """How the effect came about, and came to be known."""
    for moment in moments:
        event, logged = moment.logged.event, moment.logged
        if not moment.counts:
            continue
        match event:
            case ev.ToolInvocationStarted():
                facts = {"external_key": event.external_key, "worker_id": event.worker_id, "token": event.token}
                mine = "" if event.invocation_id == invocation_id else " (another try)"
                yield _tree("try", f"attempt {event.attempt_id}{mine}", logged, facts, [])
            case ev.InvocationInDoubt():
                yield _tree("doubt", f"in doubt: {event.error_class}", logged, {}, [])
            case ev.InvocationProbed():
                yield _tree("probe", f"the external system says {event.answer.value}", logged, {}, [])
            case ev.InvocationParked():
                yield _tree("doubt", f"parked: {event.reason}", logged, {}, [])
            case ev.InvocationReopened():
                yield _tree("doubt", f"reopened by {event.by}", logged, {}, [])
            case ev.ToolInvocationFinished() if event.by is not None:
                yield _tree("human", f"{event.outcome.value} says {event.by}", logged, {"evidence": event.evidence}, [])
            case _:
                pass


def _open(history: JobHistory, row: dict[str, Any]) -> Iterator[Tree]:
    """What is asked about the effect, and nobody answers."""
    for one in unanswered(history.job) if history.job is not None and "unanswered" in row else ():
        if one.node_id == row["command_id"]:
            reported = (
                moment.logged for moment in history.moments if moment.counts and _begins(moment.logged, one.waits)
            )
            yield _tree("confirmation", str(one), next(reported, None), {"waits": one.waits, "since": one.since}, [])


def _begins(logged: LoggedEvent, node_id: str) -> bool:
    return isinstance(logged.event, ev.JobWaiting) and (logged.event.wait_type, logged.event.node_id) == (
        "verifier",
        node_id,
    )


def _tree(what: str, title: str, logged: LoggedEvent | None, facts: dict[str, Any], because: list[Tree]) -> Tree:
    at = logged.named() if logged is not None else None
    return {"what": what, "title": title, "at": at, "facts": facts, "because": because}
