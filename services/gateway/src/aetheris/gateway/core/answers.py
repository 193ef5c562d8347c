"""What the log answers to a command: yes, no, or nothing yet."""

from dataclasses import dataclass
from typing import Any, cast

from aetheris.gateway.core.standing import step_status
from aetheris.gateway.core.wire import event_type_of, payload_of
from aetheris.gateway.problems import Conflict
from aetheris.protocol import events as ev
from aetheris.protocol.contract import TERMINAL
from aetheris.protocol.fold import JobState, KeyState, St
from aetheris.protocol.ids import execution_id
from aetheris.protocol.records import Record


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
    payload = payload_of(record)
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
