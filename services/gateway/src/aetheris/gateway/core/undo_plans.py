"""What of an ended job can be undone, and the job that undoes it; pure (docs/compensation.md).

What undoes a job's effects are jobs of their own, one behind another: the id of the first follows from the job, that of
each further one from the job and the one before it, and it begins only when that one is sealed. So no effect is in two
of them unless the earlier one surely did not undo it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from aetheris.protocol.base.canonical import InvalidArgs, canonical
from aetheris.protocol.base.hidden_values import holds_hidden
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.references import UnresolvedReference, references
from aetheris.protocol.fold.job_log import LoggedEvent, logged_events, text_of
from aetheris.protocol.fold.state import JobState, PlanEntry, Settled
from aetheris.protocol.messages.commands import RegistryEntry
from aetheris.protocol.messages.events import JobCancelled, JobFailed, ToolInvocationFinished
from aetheris.protocol.plan.graph import (
    MAX_PLAN_BYTES,
    EffectClass,
    InvalidPlan,
    Node,
    TaskGraph,
    compensation_of,
    undo_id,
)
from aetheris.protocol.planning.continuation import EndedJob, ended, unsure_call
from aetheris.protocol.planning.invocation import Blobs, NotReady, invocation
from aetheris.protocol.planning.personal_fields import PersonalRefused, personal_fields
from aetheris.protocol.planning.schemas import graph_json, pinned

MOST_UNDOS = 16
"""Jobs, each behind the one before it, that undo one job."""


class UndoStatus(StrEnum):
    """How an effect stands to being undone."""

    UNDOABLE = "undoable"
    UNDOING = "undoing"
    UNDONE = "undone"
    IN_DOUBT = "in_doubt"
    """Whether it took effect, or whether it was undone, nobody knows."""
    NOT_UNDOABLE = "not_undoable"


@dataclass(frozen=True, slots=True)
class Effect:
    """A step that has had its effect, or may have: when, by the log's time, and how it stands; `call` undoes it."""

    node_id: str
    tool: str
    offset: int
    at_ms: int
    at: str
    external_id: str | None
    standing: UndoStatus
    why: str | None = None
    job_id: str | None = None
    """The job that undoes it, or has."""
    call: Node | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """A job that undoes another: None where it has not begun."""

    job_id: str
    job: EndedJob | None

    @property
    def is_over(self) -> bool:
        """Whether nothing of it changes any more."""
        return self.job is not None and self.job.seal is not None


@dataclass(frozen=True, slots=True)
class UndoHistory:
    """A job with its seal, and by key where and when its success was recorded."""

    ended: EndedJob
    told: Mapping[str, LoggedEvent]


def first_key(job_id: str) -> str:
    """What the id of the first job that undoes a job follows from: no client can send it, as it has a space."""
    return f"undoes {job_id}"


def key_behind(job_id: str, undos: Sequence[Undo]) -> str:
    """The same of the one behind these, which undo it."""
    return f"{first_key(job_id)} after {undos[-1].job_id}" if undos else first_key(job_id)


def is_undo(job: JobState) -> bool:
    """Whether a job was made to undo another."""
    return (job.created.idempotency_key or "").startswith(first_key(""))


def history(records: Sequence[Record]) -> UndoHistory | None:
    """A job of its records; None where it was never created."""
    found = ended(records)
    if found is None:
        return None
    told: dict[str, LoggedEvent] = {}
    for logged in logged_events(records):
        event = logged.event
        if isinstance(event, ToolInvocationFinished) and event.invocation_id in _settlers(found.job):
            told.setdefault(event.idempotency_key, logged)
    return UndoHistory(found, told)


def effects(
    found: UndoHistory, undos: Sequence[Undo], registry: Mapping[str, RegistryEntry], blobs: Blobs
) -> list[Effect]:
    """The effects of a job in the order in which they are undone: the last one first, what is in doubt before all.

    Args:
        undos: the jobs that undo it, in their order.
    """
    job = found.ended.job
    known = [_effect(found, entries[-1], undos, registry, blobs) for entries in job.entries.values()]
    return sorted((one for one in known if one is not None), key=lambda one: -one.offset)


def plan(wanted: Iterable[Effect], registry: Mapping[str, RegistryEntry]) -> dict[str, Any]:
    """The plan that undoes effects, one after another, pinned.

    Raises:
        InvalidPlan: larger than a plan may be.
    """
    nodes: list[Node] = []
    for one in wanted:
        if one.call is not None:
            before = (nodes[-1].id,) if nodes else ()
            nodes.append(one.call.model_copy(update={"depends_on": before}))
    found = graph_json(pinned(TaskGraph(nodes=tuple(nodes)), registry))
    if len(canonical(found)) > MAX_PLAN_BYTES:
        raise InvalidPlan("nodes", f"larger than {MAX_PLAN_BYTES // 1024} KiB: undo less at a time (tool, since)")
    return found


def _settlers(job: JobState) -> frozenset[str]:
    return frozenset(state.settled_by for state in job.keys.values() if state.settled_by is not None)


def _effect(
    found: UndoHistory, entry: PlanEntry, undos: Sequence[Undo], registry: Mapping[str, RegistryEntry], blobs: Blobs
) -> Effect | None:
    """How a step stands; None where it surely has had no effect, only reads, or undoes another."""
    job, node = found.ended.job, entry.node
    if entry.effect_class is EffectClass.PURE or node.compensates is not None:
        return None
    settled = job.settled_key(node.id)
    if settled is None or settled[1].outcome is not Settled.SUCCESS:
        if unsure_call(job, node.id) is None:
            return None
        why = "nobody knows whether it took effect"
        return Effect(node.id, node.tool_name, job.last_offset, 0, "", None, UndoStatus.IN_DOUBT, why)
    key, state = settled
    logged = found.told.get(key)
    record = logged.record if logged is not None else None
    told = Effect(
        node.id,
        node.tool_name,
        record.offset if record is not None else -1,
        record.timestamp_ms if record is not None else 0,
        text_of(record.header("ce_time")) if record is not None else "",
        state.external_id,
        UndoStatus.NOT_UNDOABLE,
    )
    return _standing(job, entry, told, undos) or _call(job, entry, told, registry, blobs)


def _standing(job: JobState, entry: PlanEntry, told: Effect, undos: Sequence[Undo]) -> Effect | None:
    """What was done about it already; None where nothing was that counts."""
    node_id = entry.node.id
    if isinstance(job.terminal, JobFailed | JobCancelled) and node_id in (job.terminal.compensated or ()):
        return _as(told, UndoStatus.UNDONE, job_id=job.job_id)
    tried = [(job.job_id, job), *((one.job_id, one.job.job) for one in undos if one.job is not None)]
    for by, there in tried:
        if there.entry(undo_id(node_id)) is None:
            continue
        settled = there.settled_key(undo_id(node_id))
        if settled is not None and settled[1].outcome is Settled.SUCCESS and not settled[1].partial:
            return _as(told, UndoStatus.UNDONE, job_id=by)
        if there.terminal is not None and unsure_call(there, undo_id(node_id)) is not None:
            return _as(told, UndoStatus.IN_DOUBT, "nobody knows whether it was undone, or only a part of it was", by)
    if undos and not undos[-1].is_over:
        last = undos[-1]
        if last.job is None or last.job.job.entry(undo_id(node_id)) is not None:
            return _as(told, UndoStatus.UNDOING, job_id=last.job_id)
    return None


def _call(job: JobState, entry: PlanEntry, told: Effect, registry: Mapping[str, RegistryEntry], blobs: Blobs) -> Effect:
    """The call that undoes it, or why there is none."""
    undo = compensation_of(entry.node)
    if undo is None:
        return _as(told, UndoStatus.NOT_UNDOABLE, "its step declares no compensation (compensate_with)")
    try:
        args = invocation(job, PlanEntry(0, undo, None), blobs).args
        if any(references(args)):
            return _as(
                told,
                UndoStatus.NOT_UNDOABLE,
                "a result that its compensation refers to would be taken for a part of the plan",
            )
        if holds_hidden(args) or (undo.tool_name in registry and personal_fields(registry[undo.tool_name].schema_)):
            why = "the arguments of its compensation are personal: a hidden value is its own job's alone"
            return _as(told, UndoStatus.NOT_UNDOABLE, why)
        call = undo.model_copy(update={"args": args, "compensates": None})
        pinned(TaskGraph(nodes=(call,)), registry)
    except InvalidPlan as error:
        return _as(told, UndoStatus.NOT_UNDOABLE, f"{undo.tool_name}: {error.rule}")
    except (NotReady, UnresolvedReference, InvalidArgs, KeyError, ValidationError, PersonalRefused):
        return _as(
            told, UndoStatus.NOT_UNDOABLE, "the arguments of its compensation don't follow from the job's results"
        )
    return Effect(
        told.node_id,
        told.tool,
        told.offset,
        told.at_ms,
        told.at,
        told.external_id,
        UndoStatus.UNDOABLE,
        call=call,
    )


def _as(told: Effect, standing: UndoStatus, why: str | None = None, job_id: str | None = None) -> Effect:
    return Effect(told.node_id, told.tool, told.offset, told.at_ms, told.at, told.external_id, standing, why, job_id)
