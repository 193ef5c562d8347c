"""What the gateway says, as pure functions: is a submission well formed, how a job stands, what an event is called.

It decides nothing about a job: whatever is said here follows from the request alone or from the log.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aetheris.gateway.problems import BadRequest, Conflict
from aetheris.protocol import events as ev
from aetheris.protocol.canonical import InvalidArgs, canonical, digest, parse
from aetheris.protocol.commands import RegistryEntry, Submit
from aetheris.protocol.contract import TERMINAL, Status
from aetheris.protocol.events import RejectReason
from aetheris.protocol.fold import Entry, JobState, KeyState, Settled, St
from aetheris.protocol.ids import execution_id
from aetheris.protocol.plan import MAX_PLAN_BYTES, RUNNABLE, InvalidPlan, TaskGraph
from aetheris.protocol.records import Record
from aetheris.protocol.schemas import graph_json, pinned

MAX_BODY_BYTES = 512 * 1024
MAX_DEPTH = 64
"""Levels of nesting: every service parses the plan again, none may run out of stack."""

Loc = Iterable[int | str]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Submission(_Body):
    """The body of POST /jobs."""

    plan: dict[str, Any] | None = None
    goal: str | None = Field(default=None, max_length=10_000)
    agent: str | None = Field(default=None, max_length=200)
    session: str | None = Field(default=None, max_length=200)
    options: dict[str, Any] = Field(default_factory=dict)


class CancelBody(_Body):
    """The body of POST /jobs/{id}/cancel; it may be left out."""

    reason: str | None = Field(default=None, max_length=2_000)
    compensate: bool = False


class ResolveBody(_Body):
    """The body of POST /jobs/{id}/contracts/{execution_id}/resolve."""

    verdict: str = Field(pattern="^(happened|not_executed|retry)$")
    evidence: str = Field(min_length=1, max_length=10_000)
    result: Any = None


def body_of(raw: bytes) -> dict[str, Any]:
    """A request's JSON object, parsed strictly; no body is an empty object.

    Raises:
        BadRequest: naming the field.
    """
    try:
        value: Any = parse(raw) if raw else {}
        _check_depth(value)
        canonical(value)
    except InvalidArgs as error:
        raise BadRequest(error.code, _dotted(error.field), error.rule) from None
    if not isinstance(value, dict):
        raise BadRequest("bad_request", "body", "must be a JSON object")
    return cast("dict[str, Any]", value)


def read_cancel(raw: bytes) -> CancelBody:
    """Raises: BadRequest."""
    try:
        return CancelBody.model_validate(body_of(raw))
    except ValidationError as error:
        raise _invalid(error) from None


def read_resolve(raw: bytes) -> ResolveBody:
    """Raises: BadRequest."""
    try:
        return ResolveBody.model_validate(body_of(raw))
    except ValidationError as error:
        raise _invalid(error) from None


@dataclass(frozen=True, slots=True)
class Asked:
    """Whose submission it is, and the job that it names."""

    job_id: str
    by: str
    tenant: str
    idempotency_key: str | None


def submit_command(raw: bytes, asked: Asked, registry: Mapping[str, RegistryEntry]) -> Submit:
    """The command that a submission asks for, its plan pinned to the registry.

    Args:
        registry: tool name → its newest entry.

    Raises:
        BadRequest: naming the field; nothing may be appended for it.
    """
    if len(raw) > MAX_BODY_BYTES:
        raise plan_too_large(MAX_BODY_BYTES)
    body = body_of(raw)
    try:
        wanted = Submission.model_validate(body)
    except ValidationError as error:
        raise _invalid(error) from None
    if wanted.goal is not None:
        raise BadRequest("goal_not_supported", "goal", "planning by a model is not configured")
    if wanted.plan is None:
        raise BadRequest("bad_request", "plan", "missing")
    return Submit(
        job_id=asked.job_id,
        by=asked.by,
        tenant=asked.tenant,
        request_hash=digest(body),
        plan=_pinned_plan(wanted.plan, registry),
        agent=wanted.agent,
        session=wanted.session,
        idempotency_key=asked.idempotency_key,
        options=wanted.options,
    )


def plan_too_large(limit: int = MAX_PLAN_BYTES) -> BadRequest:
    """The refusal of a plan, or of a body that no plan needs; `limit` in bytes."""
    return BadRequest("invalid_plan", "plan", f"larger than {limit // 1024} KiB")


def _pinned_plan(plan: Mapping[str, Any], registry: Mapping[str, RegistryEntry]) -> dict[str, Any]:
    try:
        # Pins come from the registry alone: what a client says of a tool is dropped.
        graph = TaskGraph.model_validate({name: value for name, value in plan.items() if name != "tools"})
        _check_kinds(graph)
        found = graph_json(pinned(graph, registry))
    except ValidationError as error:
        raise _invalid(error, "plan", "invalid_plan") from None
    except InvalidPlan as error:
        raise BadRequest(error.code, f"plan.{error.field}", error.rule) from None
    if len(canonical(found)) > MAX_PLAN_BYTES:
        raise plan_too_large()
    return found


def _check_kinds(graph: TaskGraph) -> None:
    for index, node in enumerate(graph.nodes):
        if node.kind not in RUNNABLE:
            raise InvalidPlan(f"nodes[{index}].kind", f"{node.kind.value} is not supported by this version")


def _invalid(error: ValidationError, within: str = "", code: str = "bad_request") -> BadRequest:
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    return BadRequest(code, field_path(first["loc"], within) or "body", first["msg"])


def field_path(loc: Loc, within: str = "") -> str:
    """("nodes", 0, "args") as `nodes[0].args`."""
    path = within
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def _dotted(pointer: str) -> str:
    """A JSON Pointer as a field path."""
    parts = pointer.split("/")[1:]
    return field_path(int(part) if part.isdecimal() else part for part in parts) or "body"


def _check_depth(value: Any) -> None:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _children(outer)]
        if not level:
            return
    raise InvalidArgs("", f"nested deeper than {MAX_DEPTH} levels")


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


# How a job stands


def job_view(job: JobState, created_at: str) -> dict[str, Any]:
    """What GET /jobs/{id} answers, from the job's fold."""
    view: dict[str, Any] = {
        "job_id": job.job_id,
        "status": job_status(job),
        "created_at": created_at,
        "submitted_by": job.created.submitted_by,
        "tenant": job.created.tenant,
        "steps": [_step(job, entries[-1]) for entries in job.entries.values()],
    }
    why = _why(job)
    if why is not None:
        view["why"] = why
    if isinstance(job.terminal, ev.JobCompleted):
        view["result"] = job.terminal.result
    if isinstance(job.terminal, ev.JobFailed):
        view["error"] = job.terminal.error
    return view


def job_status(job: JobState) -> str:
    """running, waiting, needs_upgrade, stopping, cancelling, completed, failed or cancelled."""
    if job.terminal is not None:
        return job.terminal.event_type.removeprefix("job_")
    if job.needs_upgrade:
        return "needs_upgrade"
    if _parked(job) is not None or job.waiting is not None:
        return "waiting"
    if job.cancel is not None:
        return "cancelling"
    return "stopping" if job.stopping is not None else "running"


def _step(job: JobState, entry: Entry) -> dict[str, Any]:
    node = entry.node
    step: dict[str, Any] = {"node_id": node.id, "tool": node.tool_name, "state": Status.PENDING.value, "attempts": 0}
    found = _counting_key(job, node.id)
    finished = job.finished.get(node.id)
    if found is not None:
        key, state = found
        step["state"] = step_status(state).value
        step["attempts"] = state.attempts
        step["execution_id"] = execution_id(job.job_id, node.id, key)
        step["external_id"] = state.external_id
        step["reason"] = state.parked_because if state.st is St.PARKED else state.reason
    if finished is not None:
        step["result_type"] = finished.result_type
        step["reason"] = finished.reason or step.get("reason")
    return {name: value for name, value in step.items() if value is not None}


def _counting_key(job: JobState, node_id: str) -> tuple[str, KeyState] | None:
    """The node's key that stands for it: the settled one that counts, else the newest."""
    settled = job.settled_key(node_id)
    if settled is not None:
        return settled
    keys = job.node_keys.get(node_id)
    return (keys[-1], job.keys[keys[-1]]) if keys else None


def step_status(state: KeyState) -> Status:
    """Where the execution contract of a key stands (docs/execution-contract.md)."""
    if state.st is St.SETTLED:
        return _ended(state)
    if state.st is St.PARKED:
        return Status.WAITING
    if state.st is St.NONE:
        return Status.WAITING if state.requested is not None and state.decision is None else Status.PENDING
    return Status.RUNNING


def _ended(state: KeyState) -> Status:
    if state.outcome is Settled.SUCCESS:
        return Status.COMPLETED
    if state.outcome is Settled.FAILED:
        return Status.FAILED
    gone = (RejectReason.CANCELLED.value, RejectReason.EXPIRED.value)
    return Status.CANCELLED if state.reason in gone else Status.REJECTED


def _why(job: JobState) -> str | None:
    """Why a job that has not ended does not go on."""
    if job.terminal is not None:
        return None
    if job.needs_upgrade:
        return "its log holds an event of a newer version: upgrade the services"
    parked = _parked(job)
    if parked is not None:
        return (
            f"{parked.node_id} is parked ({parked.parked_because}): whether it took effect is not known. "
            "Resolve it with evidence: happened, not_executed or retry"
        )
    doubted = next((state for state in job.keys.values() if state.st is St.STARTED and state.in_doubt), None)
    if doubted is not None:
        return f"{doubted.node_id} is in doubt ({doubted.in_doubt}): whether it took effect is being found out"
    if job.waiting is not None:
        node = f"{job.waiting.node_id} waits" if job.waiting.node_id else "waits"
        return f"{node} for {job.waiting.wait_type}"
    return f"stopping: {job.stopping.reason}" if job.stopping is not None else None


def _parked(job: JobState) -> KeyState | None:
    return next((state for state in job.keys.values() if state.st is St.PARKED), None)


# What the log answers to a command


def stands_against_cancel(job: JobState) -> bool:
    """Whether a cancel asks for what has already been asked for.

    Raises:
        Conflict: the job has ended otherwise.
    """
    if job.terminal is not None and not isinstance(job.terminal, ev.JobCancelled):
        raise ended(job.terminal.event_type)
    return job.terminal is not None or job.cancel is not None


def ended(event_type: str) -> Conflict:
    """The refusal of what only a live job can do."""
    return Conflict("illegal_transition", f"the job has ended: {event_type}", event=event_type)


def key_to_resolve(job: JobState, execution: str) -> str | None:
    """The idempotency key of an execution contract; None if the job has no such contract."""
    for key, state in job.keys.items():
        if execution_id(job.job_id, state.node_id, key) == execution:
            return key
    return None


def check_resolvable(state: KeyState, verdict: str) -> None:
    """Whether a human may settle it now.

    Raises:
        Conflict: it is settled, or its try may still report.
    """
    status = step_status(state)
    if status in TERMINAL or state.st is St.NONE or (state.st is not St.PARKED and verdict != "happened"):
        message = f"the step is {status.value}: only what is parked in doubt can be resolved"
        raise Conflict("illegal_transition", message, state=status.value)


@dataclass(frozen=True, slots=True)
class Heard:
    """What an event says to one who waits for the answer to a command."""

    event_type: str
    caused_by: str | None
    idempotency_key: str | None


def heard(record: Record) -> Heard:
    """The part of an event that answers a command; what can't be read answers none."""
    payload = _payload(record)
    fields = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    return Heard(event_type_of(record), fields.get("caused_by"), fields.get("idempotency_key"))


def answers_cancel(command_id: str, event: Heard) -> bool:
    """Whether the event grants the cancel.

    Raises:
        Conflict: the job ended otherwise.
    """
    if event.event_type in ("job_completed", "job_failed") and event.caused_by != command_id:
        raise ended(event.event_type)
    return event.caused_by == command_id or event.event_type in ("cancel_requested", "job_cancelled")


def answers_resolve(command_id: str, key: str, event: Heard) -> bool:
    """Whether the event settles the step as the human said.

    Raises:
        Conflict: somebody else settled or reopened it first.
    """
    if event.caused_by == command_id:
        return True
    moved = ("tool_invocation_finished", "invocation_reopened", "invocation_rejected")
    if event.idempotency_key == key and event.event_type in moved:
        raise Conflict("illegal_transition", f"the step was moved by {event.event_type} first", event=event.event_type)
    return False


# Events as the API shows them

SSE_NAMES: Mapping[str, str] = {
    "job_created": "status",
    "plan_generated": "status",
    "job_waiting": "status",
    "wait_completed": "status",
    "cancel_requested": "status",
    "job_stopping": "status",
    "tool_invocation_finished": "tool_result",
    "job_completed": "done",
    "job_cancelled": "done",
    "job_failed": "error",
}
"""event_type → the name that an SSE client listens to; the others come as `message`."""


class Sequence:
    """A job's records in order, numbered from 1; a record that repeats an event_id has no number."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self.last = 0

    def number(self, record: Record) -> int | None:
        """The record's place among the job's events; None for a repeat."""
        event_id = _text(record.header("ce_id")) or f"{record.partition}:{record.offset}"
        if event_id in self._seen:
            return None
        self._seen.add(event_id)
        self.last += 1
        return self.last


def event_view(sequence: int, record: Record) -> dict[str, Any]:
    """An event as clients get it: its envelope, and its payload under `data`."""
    return {
        "seq": sequence,
        "id": _text(record.header("ce_id")),
        "type": event_type_of(record),
        "time": _text(record.header("ce_time")),
        "source": _text(record.header("ce_source")),
        "subject": _text(record.header("ce_subject")),
        "partition": record.partition,
        "offset": record.offset,
        "data": _payload(record),
    }


def event_type_of(record: Record) -> str:
    """The snake_case name in ce_type; empty where there is none."""
    parts = _text(record.header("ce_type")).split(".")
    return parts[2] if len(parts) == 4 else ""


def _text(header: bytes | None) -> str:
    return (header or b"").decode(errors="replace")


def _payload(record: Record) -> Any:
    try:
        return json.loads(record.value)
    except (ValueError, RecursionError):
        return {"$raw": base64.b64encode(record.value).decode()}
