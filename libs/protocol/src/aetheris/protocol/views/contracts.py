"""Execution contracts: one for each call of a node, a projection of the log (docs/execution-contract.md)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aetheris.protocol.base.canonical import InvalidArgs
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.references import UnresolvedReference
from aetheris.protocol.fold.job_log import Told, fold_event
from aetheris.protocol.fold.state import NODE_WAITS, Entry, JobState, KeyState, Settled, St
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Event, RejectReason, Via
from aetheris.protocol.plan.graph import Kind
from aetheris.protocol.planning.contract import TERMINAL, Status, Trigger, advance
from aetheris.protocol.planning.invocation import NotReady, invocation
from aetheris.protocol.planning.outcome import structured

MAX_TRANSITIONS = 50
"""Kept in a contract; all of them are in the log."""

ACTION_TYPES: Mapping[Kind, str] = {Kind.TOOL: "tool_call", Kind.LLM: "llm_call", Kind.HUMAN: "ecs_request"}
"""The others are called as their kind."""

_ENDED_BY: Mapping[str, Trigger] = {
    RejectReason.CANCELLED: Trigger.CANCEL,
    RejectReason.EXPIRED: Trigger.TIMEOUT,
}


class Level(StrEnum):
    """How much of a contract is shown: what came of it; how it got there; what was asked for (no human's business)."""

    RESULT = "result"
    TRANSITION = "transition"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who moved a contract: its role, and which one of them (an internal name, hidden from humans)."""

    role: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """A move of a contract, and the event that it follows from."""

    execution_id: str
    key: str
    node_id: str
    source: Status
    target: Status
    trigger: Trigger
    at: str
    actor: Actor
    event_id: str

    def view(self, level: Level = Level.TRANSITION) -> dict[str, Any]:
        """{from, to, trigger, timestamp, actor}."""
        named = {"actor_id": self.actor.name} if level is Level.REQUEST and self.actor.name is not None else {}
        return {
            "from": self.source.value,
            "to": self.target.value,
            "trigger": self.trigger.value,
            "timestamp": self.at,
            "actor": self.actor.role,
            "event_id": self.event_id,
            **named,
        }


@dataclass(slots=True)
class _Course:
    """How a key's contract got to where it stands."""

    status: Status = Status.PENDING
    moved: list[Transition] = field(default_factory=list)
    count: int = 0
    error: str | None = None

    def add(self, transition: Transition) -> None:
        self.status = transition.target
        self.count += 1
        self.moved.append(transition)
        del self.moved[:-MAX_TRANSITIONS]


@dataclass(slots=True)
class Contracts:
    """A job's contracts, moved by its events in log order, and by nothing else."""

    job: JobState | None = None
    counted: bool = False
    """Whether the last event did."""
    _courses: dict[str, _Course] = field(default_factory=dict)
    _planned_at: dict[str, str] = field(default_factory=dict)

    def take(self, told: Told) -> Sequence[Transition]:
        """Fold the job's next event; the moves that follow from it (none from a void one)."""
        event = told.said
        keys = _key_of(self.job, event)
        before = _st(self.job, keys)
        self.job, self.counted = fold_event(self.job, event, told.record.offset)
        if self.job is None or not self.counted or not isinstance(event, Event):
            return ()
        if isinstance(event, ev.PlanGenerated):
            for node_id in self.job.entries:
                self._planned_at.setdefault(node_id, told.time)
        if isinstance(event, ev.JobCompleted | ev.JobFailed | ev.JobCancelled):
            return [one for key in list(self._courses) for one in self._move(self.job, key, St.NONE, event, told)]
        key = keys or _key_of(self.job, event)
        return self._move(self.job, key, before, event, told) if key is not None else ()

    def view(self, level: Level = Level.RESULT) -> list[dict[str, Any]]:
        """The contracts, in the order of the plan; a call that an edit replaced comes before its successor."""
        if self.job is None:
            return []
        return [view for entries in self.job.entries.values() for view in self._of_node(self.job, entries[-1], level)]

    def status(self, key: str) -> Status:
        """Where the contract of a key stands."""
        course = self._courses.get(key)
        return course.status if course is not None else Status.PENDING

    def ended(self, key: str) -> tuple[Any, str | None]:
        """(the result, the error) of a key whose contract has ended."""
        return _result(self.job.keys[key]) if self.job is not None else None, self._courses[key].error

    def _move(self, job: JobState, key: str, before: St, event: Event, told: Told) -> Sequence[Transition]:
        course = self._courses.setdefault(key, _Course())
        state = job.keys[key]
        moved = [
            self._advance(job, key, trigger, event, told) for trigger in _triggers(course.status, state, before, event)
        ]
        if job.terminal is not None and state.st is St.NONE and course.status is Status.WAITING:
            # approved, or asked about, behind a stop or just before it: nothing starts it any more
            moved.append(self._advance(job, key, Trigger.CANCEL, event, told))
        if moved and course.status in TERMINAL:
            course.error = _error(state, event)
        return moved

    def _advance(self, job: JobState, key: str, trigger: Trigger, event: Event, told: Told) -> Transition:
        course, node_id = self._courses[key], job.keys[key].node_id
        transition = Transition(
            execution_id=execution_id(job.job_id, node_id, key),
            key=key,
            node_id=node_id,
            source=course.status,
            target=advance(course.status, trigger),
            trigger=trigger,
            at=told.time,
            actor=_actor(event),
            event_id=told.id,
        )
        course.add(transition)
        return transition

    def _of_node(self, job: JobState, entry: Entry, level: Level) -> Iterator[dict[str, Any]]:
        keys = job.node_keys.get(entry.node.id, ())
        for key in keys:
            yield self._contract(job, entry, key, job.keys[key], level)
        if not keys:
            yield self._contract(job, entry, key_to_be(job, entry), KeyState(entry.node.id), level)

    def _contract(self, job: JobState, entry: Entry, key: str | None, state: KeyState, level: Level) -> dict[str, Any]:
        course = self._courses.get(key or "") or _Course()
        created_at = self._planned_at.get(entry.node.id, "")
        found: dict[str, Any] = {
            "execution_id": execution_id(job.job_id, entry.node.id, key) if key is not None else None,
            "node_id": entry.node.id,
            "action_type": ACTION_TYPES.get(entry.node.kind, entry.node.kind.value),
            "irreversible": entry.irreversible,
            "status": course.status.value,
            **structured(entry, state, course.status, course.error),
            "result": _result(state),
            "metadata": _metadata(entry, state),
            "created_at": created_at,
            "updated_at": course.moved[-1].at if course.moved else created_at,
        }
        if level is not Level.RESULT:
            found["transitions"] = [transition.view(level) for transition in course.moved]
            found["transitions_total"] = course.count
        return found | (_request(entry, key, state) if level is Level.REQUEST else {})


def _triggers(status: Status, state: KeyState, before: St, event: Event) -> Sequence[Trigger]:
    match event:
        case ev.ToolInvocationStarted():
            return {Status.PENDING: (Trigger.START,), Status.WAITING: (Trigger.RESUME,)}.get(status, ())
        case ev.ApprovalRequested() | ev.InvocationParked() | ev.JobWaiting():
            return _suspend(status) if state.st in (St.NONE, St.PARKED) or state.is_asking else ()
        case ev.InvocationReopened():
            return _resume(status)
        case ev.ToolInvocationFinished() | ev.InvocationRejected() | ev.WaitCompleted():
            if state.st is St.SETTLED and before is not St.SETTLED:
                return _end(status, _ending(state))
            return _resume(status) if state.st is St.REOPENED else ()
        case _:
            return ()


def _ending(state: KeyState) -> Trigger:
    if state.outcome is Settled.SUCCESS:
        return Trigger.SUCCEED
    asked_for = state.reason == RejectReason.CANCELLED
    if state.outcome is Settled.FAILED:
        return Trigger.CANCEL if asked_for else Trigger.FAIL
    return _ENDED_BY.get(state.reason or "", Trigger.REJECT)


def _suspend(status: Status) -> Sequence[Trigger]:
    if status is Status.PENDING:
        return (Trigger.START, Trigger.SUSPEND)
    return (Trigger.SUSPEND,) if status is Status.RUNNING else ()


def _resume(status: Status) -> Sequence[Trigger]:
    return (Trigger.RESUME,) if status is Status.WAITING else ()


def _end(status: Status, ending: Trigger) -> Sequence[Trigger]:
    """What is cancelled or times out while it waits leaves from there; all else ends while it runs."""
    if status in TERMINAL:
        return ()
    if ending is Trigger.TIMEOUT:
        return (*_suspend(status), ending)
    if ending is Trigger.CANCEL and status is Status.WAITING:
        return (ending,)
    first = (Trigger.START,) if status is Status.PENDING else _resume(status)
    return (*first, ending)


def _actor(event: Event) -> Actor:
    match event:
        case ev.ToolInvocationStarted():
            return Actor("executor", f"{event.worker_id}/{event.incarnation}")
        case ev.ToolInvocationFinished():
            if event.via in (Via.EXECUTOR, Via.LATE):
                return Actor("executor")
            return Actor("human", event.by) if event.via is Via.HUMAN else Actor("ledger", event.via.value)
        case ev.InvocationReopened() if event.by == "human":
            return Actor("human")
        case _:
            return Actor("ledger")


def _error(state: KeyState, event: Event) -> str | None:
    if state.outcome is Settled.SUCCESS:
        return None
    if isinstance(event, ev.InvocationRejected) and event.detail:
        return f"{event.reason.value}: {event.detail}"
    return state.reason or "failed"


def _key_of(job: JobState | None, event: object) -> str | None:
    """The key that an event is about; a wait's end counts for the key that waits."""
    if isinstance(event, ev.KeyEvent):
        return event.idempotency_key
    if not isinstance(event, ev.JobWaiting | ev.WaitCompleted) or event.wait_type not in NODE_WAITS or job is None:
        return None
    waiting = job.open_waits.get((event.wait_type, event.node_id))
    return waiting.idempotency_key if waiting is not None else None


def _st(job: JobState | None, key: str | None) -> St:
    state = job.keys.get(key) if job is not None and key is not None else None
    return state.st if state is not None else St.NONE


def key_to_be(job: JobState, entry: Entry) -> str | None:
    """The key of a call that nobody has asked for, where its arguments are known."""
    try:
        return invocation(job, entry).key
    except (NotReady, UnresolvedReference, InvalidArgs, KeyError):
        return None


def _result(state: KeyState) -> Any:
    return {"$blob": state.result_ref.model_dump()} if state.result_ref is not None else state.result


def _metadata(entry: Entry, state: KeyState) -> dict[str, Any]:
    waits = state.waits_for
    found: dict[str, Any] = {
        "tool": entry.node.tool_name,
        "attempts": state.attempts,
        "external_id": state.external_id,
        "parked_because": state.parked_because if state.st is St.PARKED else None,
        "waits_for": {"wait_type": waits.wait_type, "correlation_key": waits.correlation_key} if waits else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _request(entry: Entry, key: str | None, state: KeyState) -> dict[str, Any]:
    """The action as it was planned, and its limits."""
    node, wait = entry.node, entry.node.wait
    detail = {"kind": node.kind.value, "tool": node.tool, "arguments": node.args, "occurrence": node.occurrence}
    return {
        "action_detail": {name: value for name, value in detail.items() if value is not None},
        "idempotency_key": key,
        "timeout_seconds": entry.timeout_s if entry.pin is not None else wait.timeout_s if wait else None,
        "due_at": state.waits_for.due_at if state.waits_for is not None else None,
    }
