"""The execution trace: what became of a job and of each of its calls, in one list in log order (docs/replay.md).

Contracts as they are created and moved, and beside them the plans, answers, tries and undoings that move none.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.job_log import LoggedEvent
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.contract import TERMINAL
from aetheris.views.contracts import Contracts, Transition, key_to_be
from aetheris.views.who import decided_by


@dataclass(slots=True)
class ExecutionTrace:
    """Takes a job's events in log order."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    _contracts: Contracts = field(default_factory=Contracts)
    _created: dict[str, str] = field(default_factory=dict)
    """idempotency_key → the id of its contract."""

    def take(self, logged: LoggedEvent) -> None:
        """The next event; a void one leaves no entry."""
        moved = self._contracts.take(logged)
        job = self._contracts.job
        if job is None or not self._contracts.counted or not isinstance(logged.event, Event):
            return
        of_job = _of_job(logged.event)
        if of_job is not None:
            self._add(job, logged, of_job)
        for node_id, key in _known_now(job, logged.event):
            if key not in self._created:
                self._created[key] = execution_id(job.job_id, node_id, key)
                self._add(job, logged, f"create_contract:{self._created[key]}", node_id, key)
        for action, node_id, key in _of_call(job, logged.event):
            self._add(job, logged, f"{action}:{self._created[key]}", node_id, key)
        for transition in moved:
            self._move(job, logged, transition)

    def _move(self, job: JobState, logged: LoggedEvent, moved: Transition) -> None:
        action = f"transition:{moved.execution_id}:{moved.source.value}→{moved.target.value}"
        self._add(job, logged, action, moved.node_id, moved.key)
        entry = self.entries[-1]
        entry["metadata"]["trigger"] = moved.trigger.value
        if moved.target in TERMINAL:
            entry["result"], error = self._contracts.ended(moved.key)
            entry["metadata"] |= {"error_message": error} if error is not None else {}

    def _add(
        self, job: JobState, logged: LoggedEvent, action: str, node_id: str | None = None, key: str | None = None
    ) -> None:
        role, by = decided_by(logged)
        entry = job.entry(node_id) if node_id is not None else None
        metadata: dict[str, Any] = {
            "trigger": logged.type,
            "actor": role,
            "by": by,
            "contract_id": self._created.get(key) if key is not None else None,
            "irreversible": entry.irreversible if entry is not None else None,
        }
        known = {name: value for name, value in metadata.items() if value is not None}
        named = {"seq": logged.sequence, "time": logged.time, "event_id": logged.id, "offset": logged.record.offset}
        self.entries.append({**named, "node_id": node_id, "action": action, "result": None, "metadata": known})


def execution_trace(reported: Iterable[LoggedEvent]) -> list[dict[str, Any]]:
    """The trace of a job, from its events: {seq, time, event_id, offset, node_id, action, result, metadata}."""
    found = ExecutionTrace()
    for one in reported:
        found.take(one)
    return found.entries


def _known_now(job: JobState, event: Event) -> Iterator[tuple[str, str]]:
    """(node, key) of calls of which it is now known what they are: planned, edited, or else asked for."""
    match event:
        case ev.PlanGenerated():
            entries = [found[-1] for found in job.entries.values() if found[-1].revision == event.revision]
        case ev.ApprovalDecided() if event.data is not None:
            entries = job.entries.get(event.node_id, [])[-1:]
        case _:
            entries = []
    for key, node_id in ((key_to_be(job, entry), entry.node.id) for entry in entries):
        if key is not None:
            yield node_id, key
    named = getattr(event, "idempotency_key", None)
    if named in job.keys:
        yield job.keys[named].node_id, named


def _of_job(event: Event) -> str | None:
    """What is said of the job itself."""
    match event:
        case ev.JobCreated():
            return "create_job"
        case ev.PlanGenerated():
            return f"plan:{event.revision}"
        case ev.CancelRequested() | ev.JobStopping() | ev.JobCompleted() | ev.JobFailed() | ev.JobCancelled():
            return event.event_type
        case ev.JobPaused() | ev.JobResumed():
            return f"{event.event_type}:{event.number}"
        case ev.JobFrozen() | ev.JobUnfrozen():
            return f"{event.event_type}:{event.scope}:{event.number}"
        case ev.JobWaiting() | ev.WaitCompleted() if event.node_id is None:
            return f"{event.event_type}:{event.wait_type}"
        case _:
            return None


def _of_call(job: JobState, event: Event) -> Iterator[tuple[str, str, str]]:
    """(what is said, node, key) of a call, beside what moves its contract."""
    match event:
        case ev.ToolInvocationStarted():
            yield f"try:{event.attempt_id}", event.node_id, event.idempotency_key
        case ev.ApprovalDecided():
            yield event.decision.value, event.node_id, event.idempotency_key
        case ev.ApprovalVoted():
            yield "vote", event.node_id, event.idempotency_key
        case ev.ResolutionVoted() if event.node_id is not None and event.idempotency_key is not None:
            yield "vote", event.node_id, event.idempotency_key
        case ev.ApprovalRequested() | ev.InvocationInDoubt() | ev.InvocationProbed() | ev.InvocationReopened():
            yield event.event_type, event.node_id, event.idempotency_key
        case ev.InvocationCancelRequested():
            yield event.event_type, event.node_id, event.idempotency_key
        case ev.NodeFinished() if event.result_type == "compensated":
            settled = job.settled_key(event.node_id)
            if settled is not None:
                yield "undo", event.node_id, settled[0]
        case _:
            pass
