"""The ledger of a job: each of its calls as the ledger holds it now, and which event made it so (docs/replay.md).

Derived from the job's events and from nothing else. The names are those of ledger.records.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.job_log import LoggedEvent, fold_event
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.planning.confirmation import Tally, Verdict
from aetheris.protocol.planning.contract import ContractStatus
from aetheris.protocol.planning.outcome import has_effect, step_status
from aetheris.views.who import decided_by

_NOT_DONE = {
    ContractStatus.FAILED: "failure",
    ContractStatus.REJECTED: "rejected",
    ContractStatus.CANCELLED: "cancelled",
}

_HELD = ("duplicate", "executor")
"""What a call that has not started waits for."""


@dataclass(slots=True)
class _Line:
    """What the fold does not keep of a call."""

    status: str
    decided: LoggedEvent | None
    """The event that gave it its status."""
    void: int = 0
    """Its starts that never counted."""
    first: ev.ToolInvocationStarted | None = None
    """The first of those."""
    asked: dict[str, Tally] = field(default_factory=dict)
    confirmation: Verdict | None = None
    confirmed_at: str | None = None


@dataclass(slots=True)
class LedgerView:
    """Takes a job's events in log order."""

    job: JobState | None = None
    _lines: dict[str, _Line] = field(default_factory=dict)

    def take(self, logged: LoggedEvent) -> None:
        """The next event."""
        self.job, counts = fold_event(self.job, logged.event, logged.record.offset)
        if self.job is None or logged.sequence is None:
            return
        match logged.event:
            case ev.ToolInvocationStarted() as event if not counts:
                self._void(event, logged)
            case ev.EffectConfirmed() | ev.ConfirmationFailed() as event:
                self._confirmed(event, logged)
            case _:
                pass
        for key in _touched(self.job, logged.event):
            self._stand(self.job, key, logged)

    def to_json(self) -> dict[str, Any]:
        """{job_id, calls}, in the order of each call's first event; {} before the job's creation."""
        job = self.job
        if job is None:
            return {}
        return {"job_id": job.job_id, "calls": [_view(job, key, line) for key, line in self._lines.items()]}

    def _void(self, event: ev.ToolInvocationStarted, logged: LoggedEvent) -> None:
        line = self._lines.setdefault(event.idempotency_key, _Line("void", logged))
        line.void += 1
        line.first = line.first or event

    def _confirmed(self, event: ev.EffectConfirmed | ev.ConfirmationFailed, logged: LoggedEvent) -> None:
        line = self._lines.get(event.idempotency_key)
        verdict = line.asked.setdefault(event.ask, Tally()).take(event) if line is not None else None
        if line is not None and verdict is not None:
            line.confirmation = verdict
            line.confirmed_at = logged.time if verdict == "confirmed" else None

    def _stand(self, job: JobState, key: str, logged: LoggedEvent) -> None:
        line = self._lines.setdefault(key, _Line("", None))
        status = _status(job, job.keys[key], line)
        if status != line.status:
            line.status, line.decided = status, logged


def ledger_of(reported: Iterable[LoggedEvent]) -> dict[str, Any]:
    """The ledger of a job, from its events in log order; {} for one that was never created."""
    found = LedgerView()
    for one in reported:
        found.take(one)
    return found.to_json()


def _touched(job: JobState, reported: object) -> Iterator[str]:
    """The calls that an event may have moved: the one that it names, and those of its node."""
    named, node_id = getattr(reported, "idempotency_key", None), getattr(reported, "node_id", None)
    if named in job.keys:
        yield named
    yield from (key for key in job.node_keys.get(node_id or "", ()) if key != named)
    if isinstance(reported, ev.TERMINAL):
        yield from (key for key, state in job.keys.items() if state.status is KeyStatus.NONE)


def _status(job: JobState, state: KeyState, line: _Line) -> str:
    """In a word, what the ledger holds of a call (docs/replay.md lists the words)."""
    match state.status:
        case KeyStatus.NONE if job.terminal is not None and step_status(state, over=True) is ContractStatus.CANCELLED:
            return "cancelled"
        case KeyStatus.NONE:
            held = state.is_asking or state.is_waiting or any((kind, state.node_id) in job.open_waits for kind in _HELD)
            return "waiting" if held else "new"
        case KeyStatus.STARTED:
            return "in_doubt" if state.in_doubt is not None else "started"
        case KeyStatus.REOPENED:
            return "waiting" if state.is_asking else "reopened"
        case KeyStatus.PARKED:
            return "parked"
        case KeyStatus.SETTLED:
            return _settled(job, state, line)


def _settled(job: JobState, state: KeyState, line: _Line) -> str:
    if state.outcome is not Settled.SUCCESS:
        return _NOT_DONE[step_status(state)]
    last = job.finished.get(state.node_id)
    if last is not None and last.result_type == "compensated":
        return "undone"
    return "confirmed" if line.confirmation == "confirmed" else "success"


def _view(job: JobState, key: str, line: _Line) -> dict[str, Any]:
    state, logged = job.keys.get(key), line.decided
    event = logged.event if logged is not None else None
    role, by = decided_by(logged) if logged is not None else (None, None)
    return {
        **(_held(job, key, state) if state is not None else _ignored(job, key, line)),
        "status": line.status,
        "void": line.void,
        "confirmation": line.confirmation,
        "confirmed_at": line.confirmed_at,
        "decided_by": role,
        "by": by,
        "via": event.via.value if isinstance(event, ev.ToolInvocationFinished) else None,
        "decided_at": logged.time if logged is not None else None,
        "seq": logged.sequence if logged is not None else None,
        "event_id": logged.id if logged is not None else None,
        "offset": logged.record.offset if logged is not None else None,
    }


def _held(job: JobState, key: str, state: KeyState) -> dict[str, Any]:
    entry = job.entry(state.node_id)
    called = state.started or state.requested
    return {
        "execution_id": execution_id(job.job_id, state.node_id, key),
        "invocation_id": state.settled_by or state.current_invocation,
        "idempotency_key": key,
        "attempt_id": state.external_attempt - 1,
        "token": state.fencing_token,
        "step_id": state.node_id,
        "tool_name": entry.node.tool_name if entry is not None else None,
        "args_hash": called.args_hash if called is not None else None,
        "committed": state.outcome is Settled.SUCCESS,
        "has_effect": has_effect(entry, state).value if entry is not None else None,
        "external_id": state.external_id,
        "attempts": state.invocation_count,
        "cancel_requested": state.cancel_requested,
        "reason": _reason(state),
        "alarms": list(state.alarms),
    }


def _ignored(job: JobState, key: str, line: _Line) -> dict[str, Any]:
    """A call of which there is nothing but starts that never counted."""
    event = line.first
    if event is None:
        raise LookupError("a call that no event names")
    unheard = _held(job, key, KeyState(event.node_id))
    return unheard | {"tool_name": event.tool_name, "args_hash": event.args_hash}


def _reason(state: KeyState) -> str | None:
    """Why it is not done: who refused, what failed, what is not known."""
    if state.status is KeyStatus.PARKED:
        return state.parked_because
    if state.status is KeyStatus.STARTED:
        return state.in_doubt
    return f"{state.reason}: {state.detail}" if state.reason and state.detail else state.reason
