"""The effect log: a job's effects in log order, derived from its events and from nothing else (docs/replay.md)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.fold.job_log import Told, step_indexes
from aetheris.protocol.fold.state import JobState, KeyState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.plan.graph import EffectKind, Kind
from aetheris.protocol.planning.confirmation import unanswered


@dataclass(slots=True)
class EffectLog:
    """Takes a job's events, each after it was folded."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    decisions: dict[int, Told] = field(default_factory=dict)
    """Plan revision → the decision_snapshot that it came from."""
    _decided: Told | None = None
    _order: Mapping[str, int] = field(default_factory=dict)
    _of_key: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _of_llm: dict[str, dict[str, Any]] = field(default_factory=dict)
    _asked: dict[str, str] = field(default_factory=dict)
    """Key of a human's node → the hash of the form that was shown."""
    _unanswered: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    """Step → who waits for an answer about it, and since when."""

    def take(self, job: JobState, told: Told, *, counts: bool) -> None:
        """The next event; `counts` as the fold says."""
        match told.said:
            case ev.ToolInvocationFinished() as said if counts and said.outcome.took_effect:
                self._finished(job, told, said)
            case ev.CommandCommitted() as said:
                self._committed(said)
            case ev.JobWaiting() as said if counts and said.form is not None and said.idempotency_key is not None:
                self._asked[said.idempotency_key] = digest(said.form)
            case ev.WaitCompleted() as said if counts:
                self._answered(job, told, said)
            case ev.DecisionSnapshot() as said:
                self._snapshot(told, said)
            case ev.PlanGenerated() as said:
                decided, self._decided = self._decided, None
                if counts:
                    self._planned(job, said, decided)
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

    def _finished(self, job: JobState, told: Told, said: ev.ToolInvocationFinished) -> None:
        state = job.keys[said.idempotency_key]
        tried = state.tries[said.invocation_id]
        row: dict[str, Any] = {
            "job_id": job.job_id,
            "step_index": self._order.get(said.node_id, -1),
            "command_id": said.node_id,
            **_called(state),
            "output_hash": said.output_hash or "",
            "created_at": told.time,
            "seq": told.sequence,
            "offset": told.record.offset,
            "event_id": told.id,
            "idempotency_key": said.idempotency_key,
            "invocation_id": said.invocation_id,
            "external_key": tried.external_key,
            "outcome": said.outcome.value,
            "via": said.via.value,
            "committed": False,
            "stands": state.settled_by == said.invocation_id,
        }
        entry = job.entry(said.node_id)
        row["tool_version"] = entry.tool_version if entry is not None else "1"
        if entry is not None and entry.irreversible and said.external_id is None:
            row["untraceable"] = True
        self._trace_back(row, job, said)
        self.rows.append(row)
        self._of_key.setdefault(said.idempotency_key, []).append(row)

    def _answered(self, job: JobState, told: Told, said: ev.WaitCompleted) -> None:
        """What a human answered is an effect too: it can't be had again by asking."""
        entry = job.entry(said.node_id) if said.node_id is not None else None
        if entry is None or entry.node.kind is not Kind.HUMAN or said.idempotency_key is None:
            return
        row: dict[str, Any] = {
            "job_id": job.job_id,
            "step_index": self._order.get(entry.node.id, -1),
            "command_id": entry.node.id,
            "kind": EffectKind.HUMAN.value,
            "tool_name": entry.node.tool_name,
            "input_hash": self._asked.get(said.idempotency_key, ""),
            "output_hash": said.output_hash or "",
            "created_at": told.time,
            "seq": told.sequence,
            "offset": told.record.offset,
            "event_id": told.id,
            "idempotency_key": said.idempotency_key,
            "invocation_id": "",
            "external_key": "",
            "outcome": ev.Outcome.SUCCESS.value,
            "via": ev.Via.HUMAN.value,
            "committed": True,
            "stands": True,
            "tool_version": entry.tool_version,
            "by": said.by,
        }
        self._decided_by(row, job)
        self.rows.append(row)
        self._of_key.setdefault(said.idempotency_key, []).append(row)

    def _trace_back(self, row: dict[str, Any], job: JobState, said: ev.ToolInvocationFinished) -> None:
        if said.external_id is not None:
            row["external_id"] = said.external_id
        if row["kind"] == EffectKind.LLM:
            row |= {"prompt_hash": row["input_hash"], "response_hash": row["output_hash"], **_model(said)}
            self._of_llm[said.node_id] = row
            return
        self._decided_by(row, job)

    def _decided_by(self, row: dict[str, Any], job: JobState) -> None:
        entry = job.entry(row["command_id"])
        decided = self.decisions.get(entry.revision) if entry is not None else None
        if decided is not None:
            row["decision_snapshot_id"] = decided.id

    def _committed(self, said: ev.CommandCommitted) -> None:
        for row in self._of_key.get(said.idempotency_key, ()):
            row["committed"] = row["committed"] or row["output_hash"] == said.output_hash

    def _snapshot(self, told: Told, said: ev.DecisionSnapshot) -> None:
        self._decided = told
        row = self._of_llm.get(said.command_id)
        if row is not None:
            row.setdefault("decision_snapshot_id", told.id)

    def _planned(self, job: JobState, said: ev.PlanGenerated, decided: Told | None) -> None:
        self._order = step_indexes(job)
        if decided is not None:
            self.decisions[said.revision] = decided


def _called(state: KeyState) -> dict[str, Any]:
    """What was called: of all tries of a key it is the same."""
    started = state.started
    if started is None:
        raise LookupError("an effect without a start")
    return {"kind": started.kind.value, "tool_name": started.tool_name, "input_hash": started.args_hash}


def _model(said: ev.ToolInvocationFinished) -> dict[str, Any]:
    """Which model answered, and what it used, where that is told."""
    usage = dict(said.usage or {})
    model = usage.pop("model", None)
    return {name: value for name, value in (("model", model), ("usage", usage)) if value}
