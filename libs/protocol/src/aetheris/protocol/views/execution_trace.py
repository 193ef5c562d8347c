"""The execution trace: what became of a job and of each of its calls, in one list in log order (docs/replay.md).

Contracts as they are created and moved, and beside them the plans, answers, tries and undoings that move none.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.job_log import Told
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.contract import TERMINAL
from aetheris.protocol.views.contracts import Contracts, Transition, key_to_be
from aetheris.protocol.views.who import decided_by


@dataclass(slots=True)
class ExecutionTrace:
    """Takes a job's events in log order."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    _contracts: Contracts = field(default_factory=Contracts)
    _created: dict[str, str] = field(default_factory=dict)
    """idempotency_key → the id of its contract."""

    def take(self, told: Told) -> None:
        """The next event; a void one leaves no entry."""
        moved = self._contracts.take(told)
        job = self._contracts.job
        if job is None or not self._contracts.counted or not isinstance(told.said, Event):
            return
        of_job = _of_job(told.said)
        if of_job is not None:
            self._add(job, told, of_job)
        for node_id, key in _known_now(job, told.said):
            if key not in self._created:
                self._created[key] = execution_id(job.job_id, node_id, key)
                self._add(job, told, f"create_contract:{self._created[key]}", node_id, key)
        for action, node_id, key in _of_call(job, told.said):
            self._add(job, told, f"{action}:{self._created[key]}", node_id, key)
        for transition in moved:
            self._move(job, told, transition)

    def _move(self, job: JobState, told: Told, moved: Transition) -> None:
        action = f"transition:{moved.execution_id}:{moved.source.value}→{moved.target.value}"
        self._add(job, told, action, moved.node_id, moved.key)
        entry = self.entries[-1]
        entry["metadata"]["trigger"] = moved.trigger.value
        if moved.target in TERMINAL:
            entry["result"], error = self._contracts.ended(moved.key)
            entry["metadata"] |= {"error_message": error} if error is not None else {}

    def _add(self, job: JobState, told: Told, action: str, node_id: str | None = None, key: str | None = None) -> None:
        role, by = decided_by(told)
        entry = job.entry(node_id) if node_id is not None else None
        metadata: dict[str, Any] = {
            "trigger": told.type,
            "actor": role,
            "by": by,
            "contract_id": self._created.get(key) if key is not None else None,
            "irreversible": entry.irreversible if entry is not None else None,
        }
        known = {name: value for name, value in metadata.items() if value is not None}
        named = {"seq": told.sequence, "time": told.time, "event_id": told.id, "offset": told.record.offset}
        self.entries.append({**named, "node_id": node_id, "action": action, "result": None, "metadata": known})


def execution_trace(told: Iterable[Told]) -> list[dict[str, Any]]:
    """The trace of a job, from its events: {seq, time, event_id, offset, node_id, action, result, metadata}."""
    found = ExecutionTrace()
    for one in told:
        found.take(one)
    return found.entries


def _known_now(job: JobState, said: Event) -> Iterator[tuple[str, str]]:
    """(node, key) of calls of which it is now known what they are: planned, edited, or else asked for."""
    match said:
        case ev.PlanGenerated():
            entries = [found[-1] for found in job.entries.values() if found[-1].revision == said.revision]
        case ev.ApprovalDecided() if said.data is not None:
            entries = job.entries.get(said.node_id, [])[-1:]
        case _:
            entries = []
    for key, node_id in ((key_to_be(job, entry), entry.node.id) for entry in entries):
        if key is not None:
            yield node_id, key
    named = getattr(said, "idempotency_key", None)
    if named in job.keys:
        yield job.keys[named].node_id, named


def _of_job(said: Event) -> str | None:
    """What is said of the job itself."""
    match said:
        case ev.JobCreated():
            return "create_job"
        case ev.PlanGenerated():
            return f"plan:{said.revision}"
        case ev.CancelRequested() | ev.JobStopping() | ev.JobCompleted() | ev.JobFailed() | ev.JobCancelled():
            return said.event_type
        case ev.JobPaused() | ev.JobResumed():
            return f"{said.event_type}:{said.number}"
        case ev.JobWaiting() | ev.WaitCompleted() if said.node_id is None:
            return f"{said.event_type}:{said.wait_type}"
        case _:
            return None


def _of_call(job: JobState, said: Event) -> Iterator[tuple[str, str, str]]:
    """(what is said, node, key) of a call, beside what moves its contract."""
    match said:
        case ev.ToolInvocationStarted():
            yield f"try:{said.attempt_id}", said.node_id, said.idempotency_key
        case ev.ApprovalDecided():
            yield said.decision.value, said.node_id, said.idempotency_key
        case ev.ApprovalRequested() | ev.InvocationInDoubt() | ev.InvocationProbed() | ev.InvocationReopened():
            yield said.event_type, said.node_id, said.idempotency_key
        case ev.InvocationCancelRequested():
            yield said.event_type, said.node_id, said.idempotency_key
        case ev.NodeFinished() if said.result_type == "compensated":
            settled = job.settled_key(said.node_id)
            if settled is not None:
                yield "undo", said.node_id, settled[0]
        case _:
            pass
