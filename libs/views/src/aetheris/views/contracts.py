"""Execution contracts: one for each call of a node, a projection of the log (docs/execution-contract.md)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aetheris.protocol.base.canonical import InvalidArgs
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.references import UnresolvedReference
from aetheris.protocol.fold.job_log import LoggedEvent, fold_event
from aetheris.protocol.fold.state import NODE_WAITS, JobState, KeyState, KeyStatus, PlanEntry, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import RejectReason, Via
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import Kind
from aetheris.protocol.planning.contract import TERMINAL, ContractStatus, Trigger, advance
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
class ContractActor:
    """Who moved a contract: its role, and which one of them (an internal name, hidden from humans)."""

    role: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """A move of a contract, and the event that it follows from."""

    execution_id: str
    key: str
    node_id: str
    source: ContractStatus
    target: ContractStatus
    trigger: Trigger
    at: str
    actor: ContractActor
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
class _ContractHistory:
    """How a key's contract got to where it stands."""

    status: ContractStatus = ContractStatus.PENDING
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
    _histories: dict[str, _ContractHistory] = field(default_factory=dict)
    _planned_at: dict[str, str] = field(default_factory=dict)

    def take(self, logged: LoggedEvent) -> Sequence[Transition]:
        """Fold the job's next event; the moves that follow from it (none from a void one)."""
        event = logged.event
        keys = _key_of(self.job, event)
        before = _status(self.job, keys)
        self.job, self.counted = fold_event(self.job, event, logged.record.offset)
        if self.job is None or not self.counted or not isinstance(event, Event):
            return ()
        if isinstance(event, ev.PlanGenerated):
            for node_id in self.job.entries:
                self._planned_at.setdefault(node_id, logged.time)
        if isinstance(event, ev.JobCompleted | ev.JobFailed | ev.JobCancelled):
            return [
                one for key in list(self._histories) for one in self._move(self.job, key, KeyStatus.NONE, event, logged)
            ]
        key = keys or _key_of(self.job, event)
        return self._move(self.job, key, before, event, logged) if key is not None else ()

    def view(self, level: Level = Level.RESULT) -> list[dict[str, Any]]:
        """The contracts, in the order of the plan; a call that an edit replaced comes before its successor."""
        if self.job is None:
            return []
        return [view for entries in self.job.entries.values() for view in self._of_node(self.job, entries[-1], level)]

    def status(self, key: str) -> ContractStatus:
        """Where the contract of a key stands."""
        history = self._histories.get(key)
        return history.status if history is not None else ContractStatus.PENDING

    def ended(self, key: str) -> tuple[Any, str | None]:
        """(the result, the error) of a key whose contract has ended."""
        return _result(self.job.keys[key]) if self.job is not None else None, self._histories[key].error

    def _move(
        self, job: JobState, key: str, before: KeyStatus, event: Event, logged: LoggedEvent
    ) -> Sequence[Transition]:
        history = self._histories.setdefault(key, _ContractHistory())
        state = job.keys[key]
        moved = [
            self._advance(job, key, trigger, event, logged)
            for trigger in _triggers(history.status, state, before, event)
        ]
        if job.terminal is not None and state.status is KeyStatus.NONE and history.status is ContractStatus.WAITING:
            # approved, or asked about, behind a stop or just before it: nothing starts it any more
            moved.append(self._advance(job, key, Trigger.CANCEL, event, logged))
        if moved and history.status in TERMINAL:
            history.error = _error(state, event)
        return moved

    def _advance(self, job: JobState, key: str, trigger: Trigger, event: Event, logged: LoggedEvent) -> Transition:
        history, node_id = self._histories[key], job.keys[key].node_id
        transition = Transition(
            execution_id=execution_id(job.job_id, node_id, key),
            key=key,
            node_id=node_id,
            source=history.status,
            target=advance(history.status, trigger),
            trigger=trigger,
            at=logged.time,
            actor=_actor(event),
            event_id=logged.id,
        )
        history.add(transition)
        return transition

    def _of_node(self, job: JobState, entry: PlanEntry, level: Level) -> Iterator[dict[str, Any]]:
        keys = job.node_keys.get(entry.node.id, ())
        for key in keys:
            yield self._contract(job, entry, key, job.keys[key], level)
        if not keys:
            yield self._contract(job, entry, key_to_be(job, entry), KeyState(entry.node.id), level)

    def _contract(
        self, job: JobState, entry: PlanEntry, key: str | None, state: KeyState, level: Level
    ) -> dict[str, Any]:
        history = self._histories.get(key or "") or _ContractHistory()
        created_at = self._planned_at.get(entry.node.id, "")
        found: dict[str, Any] = {
            "execution_id": execution_id(job.job_id, entry.node.id, key) if key is not None else None,
            "node_id": entry.node.id,
            "action_type": ACTION_TYPES.get(entry.node.kind, entry.node.kind.value),
            "irreversible": entry.irreversible,
            "status": history.status.value,
            **structured(entry, state, history.status, history.error),
            "result": _result(state),
            "metadata": _metadata(entry, state),
            "created_at": created_at,
            "updated_at": history.moved[-1].at if history.moved else created_at,
        }
        if level is not Level.RESULT:
            found["transitions"] = [transition.view(level) for transition in history.moved]
            found["transitions_total"] = history.count
        return found | (_request(entry, key, state) if level is Level.REQUEST else {})


def _triggers(status: ContractStatus, state: KeyState, before: KeyStatus, event: Event) -> Sequence[Trigger]:
    match event:
        case ev.ToolInvocationStarted():
            return {ContractStatus.PENDING: (Trigger.START,), ContractStatus.WAITING: (Trigger.RESUME,)}.get(status, ())
        case ev.ApprovalRequested() | ev.InvocationParked() | ev.JobWaiting():
            return _suspend(status) if state.status in (KeyStatus.NONE, KeyStatus.PARKED) or state.is_asking else ()
        case ev.InvocationReopened():
            return _resume(status)
        case ev.ToolInvocationFinished() | ev.InvocationRejected() | ev.WaitCompleted():
            if state.status is KeyStatus.SETTLED and before is not KeyStatus.SETTLED:
                return _end(status, _ending(state))
            return _resume(status) if state.status is KeyStatus.REOPENED else ()
        case _:
            return ()


def _ending(state: KeyState) -> Trigger:
    if state.outcome is Settled.SUCCESS:
        return Trigger.SUCCEED
    asked_for = state.reason == RejectReason.CANCELLED
    if state.outcome is Settled.FAILED:
        return Trigger.CANCEL if asked_for else Trigger.FAIL
    return _ENDED_BY.get(state.reason or "", Trigger.REJECT)


def _suspend(status: ContractStatus) -> Sequence[Trigger]:
    if status is ContractStatus.PENDING:
        return (Trigger.START, Trigger.SUSPEND)
    return (Trigger.SUSPEND,) if status is ContractStatus.RUNNING else ()


def _resume(status: ContractStatus) -> Sequence[Trigger]:
    return (Trigger.RESUME,) if status is ContractStatus.WAITING else ()


def _end(status: ContractStatus, ending: Trigger) -> Sequence[Trigger]:
    """What is cancelled or times out while it waits leaves from there; all else ends while it runs."""
    if status in TERMINAL:
        return ()
    if ending is Trigger.TIMEOUT:
        return (*_suspend(status), ending)
    if ending is Trigger.CANCEL and status is ContractStatus.WAITING:
        return (ending,)
    first = (Trigger.START,) if status is ContractStatus.PENDING else _resume(status)
    return (*first, ending)


def _actor(event: Event) -> ContractActor:
    match event:
        case ev.ToolInvocationStarted():
            return ContractActor("executor", f"{event.worker_id}/{event.incarnation}")
        case ev.ToolInvocationFinished():
            if event.via in (Via.EXECUTOR, Via.LATE):
                return ContractActor("executor")
            return (
                ContractActor("human", event.by) if event.via is Via.HUMAN else ContractActor("ledger", event.via.value)
            )
        case ev.InvocationReopened() if event.by == "human":
            return ContractActor("human")
        case _:
            return ContractActor("ledger")


def _error(state: KeyState, event: Event) -> str | None:
    if state.outcome is Settled.SUCCESS:
        return None
    if isinstance(event, ev.InvocationRejected) and event.detail:
        return f"{event.reason}: {event.detail}"
    return state.reason or "failed"


def _key_of(job: JobState | None, event: object) -> str | None:
    """The key that an event is about; a wait's end counts for the key that waits."""
    if isinstance(event, ev.KeyEvent):
        return event.idempotency_key
    if not isinstance(event, ev.JobWaiting | ev.WaitCompleted) or event.wait_type not in NODE_WAITS or job is None:
        return None
    waiting = job.open_waits.get((event.wait_type, event.node_id))
    return waiting.idempotency_key if waiting is not None else None


def _status(job: JobState | None, key: str | None) -> KeyStatus:
    state = job.keys.get(key) if job is not None and key is not None else None
    return state.status if state is not None else KeyStatus.NONE


def key_to_be(job: JobState, entry: PlanEntry) -> str | None:
    """The key of a call that nobody has asked for, where its arguments are known."""
    try:
        return invocation(job, entry).key
    except (NotReady, UnresolvedReference, InvalidArgs, KeyError):
        return None


def _result(state: KeyState) -> Any:
    return {"$blob": state.result_ref.model_dump()} if state.result_ref is not None else state.result


def _metadata(entry: PlanEntry, state: KeyState) -> dict[str, Any]:
    waits = state.waits_for
    found: dict[str, Any] = {
        "tool": entry.node.tool_name,
        "attempts": state.invocation_count,
        "external_id": state.external_id,
        "parked_because": state.parked_because if state.status is KeyStatus.PARKED else None,
        "waits_for": {"wait_type": waits.wait_type, "correlation_key": waits.correlation_key} if waits else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _request(entry: PlanEntry, key: str | None, state: KeyState) -> dict[str, Any]:
    """The action as it was planned, and its limits."""
    node, wait = entry.node, entry.node.wait
    detail = {"kind": node.kind.value, "tool": node.tool, "arguments": node.args, "occurrence": node.occurrence}
    return {
        "action_detail": {name: value for name, value in detail.items() if value is not None},
        "idempotency_key": key,
        "timeout_seconds": entry.timeout_s if entry.pin is not None else wait.timeout_s if wait else None,
        "due_at": state.waits_for.due_at if state.waits_for is not None else None,
    }
