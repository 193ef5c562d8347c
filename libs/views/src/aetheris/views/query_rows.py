"""A job as rows for queries: one for the job, one for each step, effect and event of it (docs/query.md).

The archiver writes them of sealed jobs, `aetheris sql` makes them of live ones: the same rows of the same records.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, cast

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.references import HIDDEN
from aetheris.protocol.fold.job_log import moment_of, text_of
from aetheris.protocol.fold.state import JobState, KeyState
from aetheris.views.job_history import HistoryEntry, JobHistory, job_history
from aetheris.views.standing import job_view

Kind = Literal["text", "integer", "time", "boolean", "json"]
"""What a column holds; json is a text, too."""
Table = Literal["jobs", "steps", "effects", "events"]

COLUMNS: Mapping[Table, Mapping[str, Kind]] = {
    "jobs": {
        "job_id": "text",
        "tenant": "text",
        "status": "text",
        "submitted_by": "text",
        "agent": "text",
        "goal": "text",
        "labels": "json",
        "created_at": "time",
        "ended_at": "time",
        "sealed_at": "time",
        "steps": "integer",
        "effects": "integer",
        "events": "integer",
        "continues": "text",
        "why": "text",
        "result": "json",
        "amended_at": "time",
        "amendment": "integer",
    },
    "steps": {
        "job_id": "text",
        "tenant": "text",
        "node_id": "text",
        "step_index": "integer",
        "tool": "text",
        "state": "text",
        "result_type": "text",
        "effect": "text",
        "attempts": "integer",
        "via": "text",
        "reason": "text",
        "external_id": "text",
        "compensates": "text",
        "execution_id": "text",
        "first_started_at": "time",
        "finished_at": "time",
        "args": "json",
        "result": "json",
        "amendment": "integer",
    },
    "effects": {
        "job_id": "text",
        "tenant": "text",
        "node_id": "text",
        "step_index": "integer",
        "kind": "text",
        "tool": "text",
        "tool_version": "text",
        "created_at": "time",
        "outcome": "text",
        "via": "text",
        "stands": "boolean",
        "committed": "boolean",
        "external_id": "text",
        "external_key": "text",
        "idempotency_key": "text",
        "invocation_id": "text",
        "input_hash": "text",
        "output_hash": "text",
        "model": "text",
        "seq": "integer",
        "event_id": "text",
        "amendment": "integer",
    },
    "events": {
        "job_id": "text",
        "tenant": "text",
        "seq": "integer",
        "event_id": "text",
        "type": "text",
        "time": "time",
        "source": "text",
        "subject": "text",
        "counts": "boolean",
        "log_partition": "integer",
        "log_offset": "integer",
        "payload": "json",
        "amendment": "integer",
    },
}
"""The columns of each table, in order. Every one but job_id may be null.

`amendment`: 0 as the job was sealed first, n with what its n-th amendment says; of a job, the highest counts.
"""

_UNSAID = frozenset({"sig", "certificate", "word"})
"""What proves a record, and says nothing else: it stays in log and bundle."""
_ENDS = frozenset({"job_completed", "job_failed", "job_cancelled"})

Row = Mapping[str, Any]


class NoJob(ValueError):
    """There is no job in these records."""


@dataclass(frozen=True, slots=True)
class QueryRows:
    """The rows of one job, or of several."""

    jobs: list[Row] = field(default_factory=list[Row])
    steps: list[Row] = field(default_factory=list[Row])
    effects: list[Row] = field(default_factory=list[Row])
    events: list[Row] = field(default_factory=list[Row])

    def of(self, table: Table) -> list[Row]:
        """Those of a table."""
        return {"jobs": self.jobs, "steps": self.steps, "effects": self.effects, "events": self.events}[table]

    def add(self, other: "QueryRows") -> None:
        """Those of another job, too."""
        for table in COLUMNS:
            self.of(table).extend(other.of(table))


def query_rows(
    records: Sequence[Record],
    *,
    sealed_at: str | None = None,
    payloads: bool = True,
    amendment: int = 0,
    amended_at: str | None = None,
) -> QueryRows:
    """The rows of a job, from its records in log order.

    Args:
        records: those that count of it: of a sealed job, what the seal covers.
        sealed_at: when it was sealed (RFC 3339); None for one that is not.
        payloads: whether what people and tools said is in them: goal, labels, args, results, payloads, reasons.
        amendment: how often its seal was amended.
        amended_at: when it was last (RFC 3339).

    Raises:
        NoJob: no creation is among them.
    """
    history = job_history(records)
    job = history.job
    if job is None or history.created is None:
        raise NoJob("no job_created is among these records")
    view = job_view(job, history.created.time)
    events = [_event(job, one, payloads=payloads) for one in history.moments if one.logged.sequence is not None]
    steps = [_step(job, history, one, payloads=payloads) for one in view["steps"]]
    effects = [_effect(job, one) for one in history.effects.rows]
    found = _job(job, history, view, payloads=payloads)
    found |= {"sealed_at": time_of(sealed_at), "steps": len(steps), "effects": len(effects), "events": len(events)}
    found["amended_at"] = time_of(amended_at)
    for row in (found, *steps, *effects, *events):
        row["amendment"] = amendment
    return QueryRows([found], [*steps], [*effects], [*events])


def time_of(text: str | None) -> datetime | None:
    """A time in UTC; None for what is none."""
    found = moment_of(text) if text else None
    return found.astimezone(UTC) if found is not None else None


def without_hidden(part: Any) -> Any:
    """The same, with nothing left of each hidden value but whose it is: its pseudonym."""
    if isinstance(part, dict):
        held = cast("dict[str, Any]", part)
        form = held.get(HIDDEN)
        if isinstance(form, dict):
            return {HIDDEN: {"k": cast("dict[str, Any]", form).get("k")}}
        return {name: without_hidden(inner) for name, inner in held.items()}
    if isinstance(part, list | tuple):
        return [without_hidden(inner) for inner in cast("Sequence[Any]", part)]
    return part


def _job(job: JobState, history: JobHistory, view: Row, *, payloads: bool) -> dict[str, Any]:
    ended = next((one.logged for one in history.moments if one.counts and one.logged.type in _ENDS), None)
    found: dict[str, Any] = {
        "job_id": job.job_id,
        "tenant": job.created.tenant,
        "status": view["status"],
        "submitted_by": job.created.submitted_by,
        "agent": job.created.agent,
        "created_at": time_of(view["created_at"]),
        "ended_at": time_of(ended.time) if ended is not None else None,
        "continues": view["continues"]["job_id"] if "continues" in view else None,
    }
    if payloads:
        found |= {"goal": view.get("goal"), "why": view.get("why"), "labels": _json(view.get("labels"))}
        found["result"] = _json(view.get("result"))
    return found


def _step(job: JobState, history: JobHistory, view: Row, *, payloads: bool) -> dict[str, Any]:
    node_id = view["node_id"]
    shown = ("node_id", "tool", "state", "result_type", "effect", "attempts", "via", "external_id", "compensates")
    found: dict[str, Any] = {
        "job_id": job.job_id,
        "tenant": job.created.tenant,
        "step_index": job.places.get(node_id, -1),
        **{name: view.get(name) for name in (*shown, "execution_id")},
        **_times(history, job.node_keys.get(node_id, ()), node_id),
    }
    if payloads:
        found |= {"reason": view.get("reason"), **_said(job, history, node_id)}
    return found


def _times(history: JobHistory, keys: Sequence[str], node_id: str) -> dict[str, datetime | None]:
    of_keys = [one.logged for key in keys for one in history.by_key.get(key, ()) if one.counts]
    started = next((one.time for one in of_keys if one.type == "tool_invocation_started"), None)
    finished = next((one.logged for one in history.moments if one.counts and _finishes(one, node_id)), None)
    return {"first_started_at": time_of(started), "finished_at": time_of(finished.time if finished else None)}


def _finishes(entry: HistoryEntry, node_id: str) -> bool:
    return entry.logged.type == "node_finished" and getattr(entry.logged.event, "node_id", None) == node_id


def _said(job: JobState, history: JobHistory, node_id: str) -> dict[str, str | None]:
    """The arguments of its last call, as they were sent, and what came of it."""
    calls = [call for key in job.node_keys.get(node_id, ()) if (call := history.calls.get(key)) is not None]
    settled = job.settled_key(node_id)
    args = calls[-1].args if calls else None
    return {"args": _json(args), "result": _json(_result(settled[1])) if settled is not None else None}


def _result(state: KeyState) -> Any:
    """A large one by its hash: it lies in the store of blobs."""
    return {"$blob": state.result_ref.model_dump()} if state.result_ref is not None else state.result


def _effect(job: JobState, row: Row) -> dict[str, Any]:
    same = ("step_index", "kind", "tool_version", "outcome", "via", "stands", "committed", "external_id", "seq")
    named = ("external_key", "idempotency_key", "invocation_id", "input_hash", "output_hash", "model", "event_id")
    return {
        "job_id": job.job_id,
        "tenant": job.created.tenant,
        "node_id": row["command_id"],
        "tool": row["tool_name"],
        "created_at": time_of(row["created_at"]),
        **{name: row.get(name) for name in (*same, *named)},
    }


def _event(job: JobState, entry: HistoryEntry, *, payloads: bool) -> dict[str, Any]:
    logged, record = entry.logged, entry.logged.record
    found: dict[str, Any] = {
        "job_id": job.job_id,
        "tenant": job.created.tenant,
        "seq": logged.sequence,
        "event_id": logged.id,
        "type": logged.type,
        "time": time_of(logged.time),
        "source": text_of(record.header("ce_source")),
        "subject": text_of(record.header("ce_subject")),
        "counts": entry.counts,
        "log_partition": record.partition,
        "log_offset": record.offset,
    }
    if payloads and not logged.is_void:
        found["payload"] = _json(dict(_payload(record)))
    return found


def _payload(record: Record) -> Iterator[tuple[str, Any]]:
    """What a record says; of one that nobody takes for an event, nothing is asked."""
    body: Any = json.loads(record.value)
    yield from ((name, value) for name, value in body.items() if name not in _UNSAID)


def _json(value: Any) -> str | None:
    if value is None:
        return None
    return json.dumps(without_hidden(value), ensure_ascii=False, separators=(",", ":"))
