"""Provenance: from what the outside knows back to why it happened (docs/replay.md).

effect ← tries ← approval or policy ← step and the results it used ← plan ← decision ← goal
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aetheris.protocol.base.conditions import BadCondition, Condition, asked_condition
from aetheris.protocol.fold.job_log import Told, moment_of
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.plan.graph import EffectKind, dependencies
from aetheris.protocol.planning.confirmation import unanswered
from aetheris.protocol.planning.invocation import uses
from aetheris.protocol.views.course import Course, Moment

Tree = dict[str, Any]
"""{what, title, at: {seq, id, type, time, offset} | null, facts, because: [Tree]}"""


def origin(course: Course, row: dict[str, Any]) -> Tree:
    """Why an effect of a job exists; `row` is its line in the effect log."""
    key = row["idempotency_key"]
    moments = course.of_key.get(key, [])
    finished = next((one.told for one in moments if one.told.id == row["event_id"]), None)
    known_as = row.get("external_id") or row["external_key"] or f"by {row.get('by')}"
    title = f"{row['tool_name']} {known_as}"
    because = [*_permissions(moments), *_tries(moments, row["invocation_id"]), *_open(course, row), _step(course, row)]
    return _tree("effect", title, finished, dict(row), because)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which effects are looked for."""

    external_id: str | None = None
    """As the outside knows it, or the external key that was sent."""
    tool: str | None = None
    since: datetime | None = None
    where: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, external_id: str | None, tool: str | None, since: str | None, where: Iterable[str]) -> "Wanted":
        """As it is written.

        Raises:
            BadCondition: naming what can't be read.
        """
        begin = moment_of(since) if since is not None else None
        if since is not None and begin is None:
            raise BadCondition("since", f"{since}: not a time (RFC 3339)")
        return cls(external_id, tool, begin, tuple(asked_condition("where", text) for text in where))

    def among(self, course: Course) -> list[dict[str, Any]]:
        """The effects of a job that are wanted, in log order."""
        return [row for row in course.effects.rows if self._takes(course, row)]

    def _takes(self, course: Course, row: dict[str, Any]) -> bool:
        if self.external_id not in (None, row.get("external_id"), row["external_key"]):
            return False
        if self.tool not in (None, row["tool_name"]):
            return False
        written = moment_of(row["created_at"])
        if self.since is not None and (written is None or written < self.since):
            return False
        call = course.calls.get(row["idempotency_key"])
        return all(call is not None and _holds(one, call.args) for one in self.where)


def _holds(condition: Condition, args: Any) -> bool:
    """Never where it can't be said: an argument is missing, or the two can't be compared."""
    try:
        return condition.holds({"args": args})
    except Exception:  # noqa: BLE001  whatever the condition stumbles over
        return False


def planned_by(course: Course, revision: int) -> Tree:
    """A plan revision, the decision that it came from, and what was asked for."""
    told = course.plans.get(revision)
    said = told.said if told is not None else None
    facts: dict[str, Any] = {"revision": revision}
    if isinstance(said, ev.PlanGenerated):
        facts |= {"plan_hash": said.plan_hash, "planner": said.planner, "planner_version": said.planner_version}
    decided = course.effects.decisions.get(revision)
    above = [_decision(course, decided)] if decided is not None else [asked_for(course)]
    return _tree("plan", f"revision {revision}", told, facts, above)


def asked_for(course: Course) -> Tree:
    """What the job was born with."""
    said = course.created.said if course.created is not None else None
    if not isinstance(said, ev.JobCreated):
        return _tree("goal", "unknown", course.created, {}, [])
    facts: dict[str, Any] = {"submitted_by": said.submitted_by, "tenant": said.tenant}
    facts |= {"agent": said.agent, "session": said.session}
    if said.brief is not None:
        facts |= {"model": said.brief.model, "tools": list(said.brief.tools)}
    title = said.goal if said.goal is not None else f"a plan submitted by {said.submitted_by}"
    known = {name: value for name, value in facts.items() if value is not None}
    return _tree("goal", title, course.created, {"job_id": said.job_id, **known}, [])


def _decision(course: Course, told: Told) -> Tree:
    said = told.said
    if not isinstance(said, ev.DecisionSnapshot):
        return _tree("decision", "unknown", told, {}, [asked_for(course)])
    summaries = {"memory_summary": said.memory_summary, "reasoning_summary": said.reasoning_summary}
    facts = {"command_id": said.command_id} | {name: text for name, text in summaries.items() if text is not None}
    made_by = [_used(row) for row in course.effects.rows if row["command_id"] == said.command_id and row["stands"]]
    return _tree("decision", said.goal, told, facts, [*made_by, asked_for(course)])


def _step(course: Course, row: dict[str, Any]) -> Tree:
    job, node_id = course.job, row["command_id"]
    call = course.calls.get(row["idempotency_key"])
    entry = job.entry(node_id) if job is not None else None
    facts: dict[str, Any] = {"node_id": node_id, "step_index": row["step_index"]}
    if call is not None:
        facts["args"] = call.args
    if job is None or entry is None:
        return _tree("step", node_id, None, facts, [])
    used = set(uses(entry))
    facts["depends_on"] = list(dependencies(entry.node))
    before = [_used(one) for one in course.effects.rows if one["command_id"] in used and one["stands"]]
    return _tree("step", node_id, None, facts, [*before, planned_by(course, _revision(job, node_id))])


def _revision(job: JobState, node_id: str) -> int:
    entry = job.entry(node_id)
    return entry.revision if entry is not None else 0


def _used(row: dict[str, Any]) -> Tree:
    """An earlier effect, without its own reasons."""
    told = ev.WaitCompleted if row["kind"] == EffectKind.HUMAN else ev.ToolInvocationFinished
    at = {"seq": row["seq"], "id": row["event_id"], "type": told.event_type}
    name = f" {row['external_id']}" if "external_id" in row else ""
    names = ("output_hash", "model", "usage", "prompt_hash", "response_hash")
    shown = {name: row[name] for name in names if name in row}
    title = f"{row['command_id']}: {row['tool_name']}{name}"
    return {"what": "used", "title": title, "at": {**at, "time": row["created_at"]}, "facts": shown, "because": []}


def _permissions(moments: list[Moment]) -> Iterator[Tree]:
    for moment in moments:
        said = moment.told.said
        if not moment.counts:
            continue
        if isinstance(said, ev.ApprovalDecided):
            facts = {"rule": said.rule, "comment": said.comment, "args_hash": said.args_hash}
            known = {name: value for name, value in facts.items() if value is not None}
            yield _tree("approval", f"{said.decision.value} by {said.approver}", moment.told, known, [])
        elif isinstance(said, ev.PolicyAllowed):
            yield _tree("policy", f"allowed by rule {said.rule}", moment.told, {"args_hash": said.args_hash}, [])


def _tries(moments: list[Moment], nonce: str) -> Iterator[Tree]:
    """How the effect came about, and came to be known."""
    for moment in moments:
        said, told = moment.told.said, moment.told
        if not moment.counts:
            continue
        match said:
            case ev.ToolInvocationStarted():
                facts = {"external_key": said.external_key, "worker_id": said.worker_id, "token": said.token}
                mine = "" if said.invocation_id == nonce else " (another try)"
                yield _tree("try", f"attempt {said.attempt_id}{mine}", told, facts, [])
            case ev.InvocationInDoubt():
                yield _tree("doubt", f"in doubt: {said.error_class}", told, {}, [])
            case ev.InvocationProbed():
                yield _tree("probe", f"the outside says {said.answer.value}", told, {}, [])
            case ev.InvocationParked():
                yield _tree("doubt", f"parked: {said.reason}", told, {}, [])
            case ev.InvocationReopened():
                yield _tree("doubt", f"reopened by {said.by}", told, {}, [])
            case ev.ToolInvocationFinished() if said.by is not None:
                yield _tree("human", f"{said.outcome.value} says {said.by}", told, {"evidence": said.evidence}, [])
            case _:
                pass


def _open(course: Course, row: dict[str, Any]) -> Iterator[Tree]:
    """What is asked about the effect, and nobody answers."""
    for one in unanswered(course.job) if course.job is not None and "unanswered" in row else ():
        if one.node_id == row["command_id"]:
            said = (moment.told for moment in course.moments if moment.counts and _begins(moment.told, one.waits))
            yield _tree("confirmation", str(one), next(said, None), {"waits": one.waits, "since": one.since}, [])


def _begins(told: Told, node_id: str) -> bool:
    return isinstance(told.said, ev.JobWaiting) and (told.said.wait_type, told.said.node_id) == ("verifier", node_id)


def _tree(what: str, title: str, told: Told | None, facts: dict[str, Any], because: list[Tree]) -> Tree:
    at = told.named() if told is not None else None
    return {"what": what, "title": title, "at": at, "facts": facts, "because": because}
