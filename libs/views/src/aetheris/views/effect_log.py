"""The effect log: a job's effects in log order, derived from its events and from nothing else (docs/replay.md)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.fold.job_log import LoggedEvent
from aetheris.protocol.fold.state import JobState, KeyState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Outcome, Via
from aetheris.protocol.plan.graph import EffectKind, Kind
from aetheris.protocol.plan.prompts import answer_of
from aetheris.protocol.planning.confirmation import unanswered
from aetheris.protocol.planning.turns import is_goals


@dataclass(slots=True)
class EffectLog:
    """Takes a job's events, each after it was folded."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    decisions: dict[str, LoggedEvent] = field(default_factory=dict)
    """Node of a model's answer → the decision_snapshot that says what it asks for."""
    _of_key: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _asked: dict[str, str] = field(default_factory=dict)
    """Key of a human's node → the hash of the form that was shown."""
    _unanswered: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    """Step → who waits for an answer about it, and since when."""

    def take(self, job: JobState, logged: LoggedEvent, *, counts: bool) -> None:
        """The next event; `counts` as the fold says."""
        match logged.event:
            case ev.ToolInvocationFinished() as event if counts and event.outcome.took_effect:
                self._finished(job, logged, event)
            case ev.CommandCommitted() as event:
                self._committed(event)
            case ev.JobWaiting() as event if counts and event.form is not None and event.idempotency_key is not None:
                self._asked[event.idempotency_key] = digest(event.form)
            case ev.WaitCompleted() as event if counts:
                self._answered(job, logged, event)
            case ev.DecisionSnapshot() as event:
                self._snapshot(job, logged, event)
            case _:
                pass
        self._mark_unanswered(job)

    def _mark_unanswered(self, job: JobState) -> None:
        """What nobody has answered about an effect, for as long as that is so."""
        found = {one.node_id: {"waits": one.waits, "since": one.since} for one in unanswered(job)}
        if found == self._unanswered:
            return
        self._unanswered = found
        for row in self.rows:
            row.pop("unanswered", None)
            if row["stands"] and row["command_id"] in found:
                row["unanswered"] = found[row["command_id"]]

    def knows(self, key: str) -> bool:
        """Whether a key took effect."""
        return key in self._of_key

    def to_json(self, job_id: str) -> dict[str, Any]:
        """{job_id, effects, effects_hash}: the same bytes whenever the same events are told."""
        return {"job_id": job_id, "effects": self.rows, "effects_hash": digest(self.rows)}

    def _finished(self, job: JobState, logged: LoggedEvent, event: ev.ToolInvocationFinished) -> None:
        state = job.keys[event.idempotency_key]
        invocation = state.invocations[event.invocation_id]
        row: dict[str, Any] = {
            "job_id": job.job_id,
            "step_index": job.places.get(event.node_id, -1),
            "command_id": event.node_id,
            **_called(state),
            "output_hash": event.output_hash or "",
            "created_at": logged.time,
            "seq": logged.sequence,
            "offset": logged.record.offset,
            "event_id": logged.id,
            "idempotency_key": event.idempotency_key,
            "invocation_id": event.invocation_id,
            "external_key": invocation.external_key,
            "outcome": event.outcome.value,
            "via": event.via.value,
            "committed": False,
            "stands": state.settled_by == event.invocation_id,
        }
        entry = job.entry(event.node_id)
        row["tool_version"] = entry.tool_version if entry is not None else "1"
        if entry is not None and entry.irreversible and event.external_id is None:
            row["untraceable"] = True
        self._trace_back(row, job, event)
        self.rows.append(row)
        self._of_key.setdefault(event.idempotency_key, []).append(row)

    def _answered(self, job: JobState, logged: LoggedEvent, event: ev.WaitCompleted) -> None:
        """What a human answered is an effect too: it can't be had again by asking."""
        entry = job.entry(event.node_id) if event.node_id is not None else None
        if entry is None or entry.node.kind is not Kind.HUMAN or event.idempotency_key is None:
            return
        row: dict[str, Any] = {
            "job_id": job.job_id,
            "step_index": job.places.get(entry.node.id, -1),
            "command_id": entry.node.id,
            "kind": EffectKind.HUMAN.value,
            "tool_name": entry.node.tool_name,
            "input_hash": self._asked.get(event.idempotency_key, ""),
            "output_hash": event.output_hash or "",
            "created_at": logged.time,
            "seq": logged.sequence,
            "offset": logged.record.offset,
            "event_id": logged.id,
            "idempotency_key": event.idempotency_key,
            "invocation_id": "",
            "external_key": "",
            "outcome": Outcome.SUCCESS.value,
            "via": Via.HUMAN.value,
            "committed": True,
            "stands": True,
            "tool_version": entry.tool_version,
            "by": event.by,
        }
        self._decided_by(row, job)
        self.rows.append(row)
        self._of_key.setdefault(event.idempotency_key, []).append(row)

    def _trace_back(self, row: dict[str, Any], job: JobState, event: ev.ToolInvocationFinished) -> None:
        if event.external_id is not None:
            row["external_id"] = event.external_id
        if row["kind"] == EffectKind.LLM:
            row |= {"prompt_hash": row["input_hash"], "response_hash": row["output_hash"], **_model(event)}
            return
        self._decided_by(row, job)

    def _decided_by(self, row: dict[str, Any], job: JobState) -> None:
        answer = answered_by(job, row["command_id"])
        decided = self.decisions.get(answer) if answer is not None else None
        if decided is not None:
            row["decision_snapshot_id"] = decided.id

    def _committed(self, event: ev.CommandCommitted) -> None:
        for row in self._of_key.get(event.idempotency_key, ()):
            row["committed"] = row["committed"] or row["output_hash"] == event.output_hash

    def _snapshot(self, job: JobState, logged: LoggedEvent, event: ev.DecisionSnapshot) -> None:
        self.decisions.setdefault(event.command_id, logged)
        for row in self.rows:
            own = row["command_id"] == event.command_id
            if own or answered_by(job, row["command_id"]) == event.command_id:
                row.setdefault("decision_snapshot_id", logged.id)


def answered_by(job: JobState, node_id: str) -> str | None:
    """The model's answer in which a goal's call was wanted; None of any other."""
    entry = job.entry(node_id)
    return answer_of(node_id) if entry is not None and is_goals(entry) else None


def _called(state: KeyState) -> dict[str, Any]:
    """What was called: of all tries of a key it is the same."""
    started = state.started
    if started is None:
        raise LookupError("an effect without a start")
    return {"kind": str(started.kind), "tool_name": started.tool_name, "input_hash": started.args_hash}


def _model(event: ev.ToolInvocationFinished) -> dict[str, Any]:
    """Which model answered, and what it used, where that is told."""
    usage = dict(event.usage or {})
    model = usage.pop("model", None)
    return {name: value for name, value in (("model", model), ("usage", usage)) if value}
