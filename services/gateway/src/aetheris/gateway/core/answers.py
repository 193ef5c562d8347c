"""What the log answers to a command: yes, no, or nothing yet."""

from dataclasses import dataclass
from typing import Any, cast

from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem, ForbiddenProblem
from aetheris.gateway.core.wire import payload_of
from aetheris.protocol.base import recordable
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.bodies import MAX_SIGNALS, keeps_signal, may_await
from aetheris.protocol.fold.job_log import event_type_of
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, PlanEntry
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Decision, Outcome
from aetheris.protocol.planning.approvals import may_not_accept, may_not_resolve
from aetheris.protocol.planning.contract import TERMINAL, ContractStatus
from aetheris.protocol.planning.outcome import step_status
from aetheris.views.contracts import key_to_be


def stands_against_cancel(job: JobState, *, compensate: bool) -> bool:
    """Whether a cancel asks for what has already been asked for.

    Raises:
        Conflict: the job has ended otherwise, or was cancelled with another word on compensation.
    """
    if job.cancel is not None and job.cancel.compensate is not compensate:
        text = "with compensation" if job.cancel.compensate else "without compensation"
        raise ConflictProblem("illegal_transition", f"the job was cancelled {text}", compensate=job.cancel.compensate)
    if job.terminal is not None and not isinstance(job.terminal, ev.JobCancelled):
        raise ended(job.terminal.event_type)
    return job.terminal is not None or job.cancel is not None


def check_pausable(job: JobState) -> None:
    """Whether a pause would hold anything.

    Raises:
        Conflict: the job has ended, or was cancelled.
    """
    if job.terminal is not None:
        raise ended(job.terminal.event_type)
    if job.cancel is not None:
        raise ConflictProblem("illegal_transition", "the job was cancelled: what that undoes goes on")


def pause_to_end(job: JobState) -> int:
    """The number of the pause in force.

    Raises:
        Conflict: the job has ended, or is not paused.
    """
    if job.terminal is not None:
        raise ended(job.terminal.event_type)
    if job.paused is None:
        raise ConflictProblem("illegal_transition", "the job is not paused")
    return job.paused.number


def ended(event_type: str) -> ConflictProblem:
    """The refusal of what only a live job can do."""
    return ConflictProblem("illegal_transition", f"the job has ended: {event_type}", event=event_type)


def key_to_resolve(job: JobState, execution: str) -> str | None:
    """The idempotency key of an execution contract; None if the job has no such contract.

    Raises:
        Conflict: nobody has asked for its call yet.
    """
    key = _key_of(job, execution)
    if key is None and _is_to_be(job, execution):
        raise ConflictProblem("illegal_transition", "the step is pending", state=ContractStatus.PENDING.value)
    return key


def contract_status(job: JobState, execution: str) -> ContractStatus | None:
    """Where an execution contract stands; None if the job has no such contract."""
    key = _key_of(job, execution)
    if key is not None:
        return step_status(job.keys[key], over=job.terminal is not None)
    return ContractStatus.PENDING if _is_to_be(job, execution) else None


def _key_of(job: JobState, execution: str) -> str | None:
    named = (key for key, state in job.keys.items() if execution_id(job.job_id, state.node_id, key) == execution)
    return next(named, None)


def _is_to_be(job: JobState, execution: str) -> bool:
    """Whether it is the contract of a call that nobody has asked for."""
    to_be = ((entries[-1].node.id, key_to_be(job, entries[-1])) for entries in job.entries.values())
    return any(key is not None and execution_id(job.job_id, node_id, key) == execution for node_id, key in to_be)


def key_to_call_off(job: JobState, execution: str) -> str | None:
    """The key of a contract that may be cancelled; None if the job has no such contract.

    Raises:
        Conflict: nobody has asked for it, or it has ended, or is about to.
    """
    key = key_to_resolve(job, execution)
    if key is None:
        return None
    state = job.keys[key]
    status = step_status(state, over=job.terminal is not None)
    if status not in (ContractStatus.RUNNING, ContractStatus.WAITING):
        message = f"the step is {status.value}: it can't be cancelled"
        raise ConflictProblem("illegal_transition", message, state=status.value)
    decided = state.decision
    if state.status is KeyStatus.NONE and decided is not None and decided.decision is not Decision.APPROVE:
        raise ConflictProblem("illegal_transition", "the step was answered: it is about to end")
    return key


def check_resolvable(state: KeyState, verdict: str) -> None:
    """Whether a human may settle it now.

    Raises:
        Conflict: it is settled, or its try may still report.
    """
    status = step_status(state)
    if (
        status in TERMINAL
        or state.status is KeyStatus.NONE
        or (state.status is not KeyStatus.PARKED and verdict != "happened")
    ):
        message = f"the step is {status.value}: only what is parked in doubt can be resolved"
        raise ConflictProblem("illegal_transition", message, state=status.value)


def check_accepts_code(job: JobState, state: KeyState) -> None:
    """Whether it is a workflow whose code may be accepted.

    Raises:
        BadRequest: it runs no code of a workflow.
    """
    if job.bodies is None or state.node_id not in job.bodies.of:
        raise BadRequestProblem("bad_request", "accept_code", f"{state.node_id} is no workflow")


def check_resolver(job: JobState, state: KeyState, by: RecordedPrincipal, verdict: str) -> None:
    """Whether he is the one to settle it.

    Raises:
        Forbidden: somebody else may.
    """
    refused = may_not_resolve(job, state, by, verdict)
    if refused is not None:
        raise ForbiddenProblem("not_an_approver", refused)


def signal_received(
    job: JobState, correlation_key: str, payload: Any, by: RecordedPrincipal
) -> ev.SignalReceived | None:
    """The signal of this key and payload that the log has; None where it may be sent.

    Raises:
        BadRequest: no node of the plan waits for the key.
        Forbidden: it would accept what could not be confirmed, and somebody else may.
        Conflict: the key was used with another payload; its wait is over; or the job goes on no more.
    """
    asked = job.open_waits.get(("confirmation", None))
    if asked is not None and accepts(job, correlation_key):
        refused = may_not_accept(asked, job.created, by)
        if refused is not None:
            raise ForbiddenProblem("not_an_approver", refused)
        return None
    waiter = next((entries[-1].node.id for entries in job.entries.values() if _awaits(entries, correlation_key)), None)
    if waiter is None and (job.bodies is None or (job.terminal is None and not may_await(job))):
        raise BadRequestProblem("unknown_key", "correlation_key", "no node of the plan waits for it")
    stands = job.signals.get(correlation_key)
    if stands is not None:
        if not _same(stands.payload, payload):
            raise _used(correlation_key)
        return stands
    if job.terminal is not None:
        raise ended(job.terminal.event_type)
    if job.stopping is not None and job.revision <= job.stopping.up_to_revision:
        raise ConflictProblem("illegal_transition", "the job is stopping")
    if waiter is None and not keeps_signal(job):
        raise ConflictProblem("too_many_signals", f"{MAX_SIGNALS} signals are kept already")
    if waiter is not None and job.settled_key(waiter) is not None:
        raise ConflictProblem("illegal_transition", f"{waiter} waits no more")
    return None


def accepts(job: JobState, correlation_key: str) -> bool:
    """Whether a signal would let the job go on although what it did could not be confirmed."""
    asked = job.open_waits.get(("confirmation", None))
    return asked is not None and asked.correlation_key == correlation_key


def _awaits(entries: list[PlanEntry], correlation_key: str) -> bool:
    wait = entries[-1].node.wait
    return wait is not None and wait.key == correlation_key


def _same(one: Any, other: Any) -> bool:
    return recordable.result(one)[1] == recordable.result(other)[1]


def _used(correlation_key: str) -> ConflictProblem:
    message = "this key was signalled with another payload"
    return ConflictProblem("signal_conflict", message, correlation_key=correlation_key)


@dataclass(frozen=True, slots=True)
class ObservedEvent:
    """What an event says to one who waits for the answer to a command."""

    event_type: str
    caused_by: str | None
    idempotency_key: str | None
    correlation_key: str | None
    payload: Any
    reason: str | None = None
    form: dict[str, Any] | None = None
    number: int | None = None
    outcome: str | None = None


def observed_event(record: Record) -> ObservedEvent:
    """The part of an event that answers a command; what can't be read answers none."""
    payload = payload_of(record)
    fields = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    return ObservedEvent(
        event_type_of(record),
        fields.get("caused_by"),
        fields.get("idempotency_key"),
        fields.get("correlation_key"),
        fields.get("payload"),
        fields.get("reason"),
        fields.get("form"),
        fields.get("number"),
        fields.get("outcome"),
    )


def answers_cancel(command_id: str, event: ObservedEvent) -> bool:
    """Whether the event grants the cancel.

    Raises:
        Conflict: the job ended otherwise.
    """
    if event.event_type in ("job_completed", "job_failed") and event.caused_by != command_id:
        raise ended(event.event_type)
    return event.caused_by == command_id or event.event_type in ("cancel_requested", "job_cancelled")


def answers_pause(event_type: str, number: int, event: ObservedEvent) -> bool:
    """Whether the event begins, or ends, the pause of that number, whoever said so.

    Raises:
        Conflict: the job was cancelled, or ended, first.
    """
    if event.event_type == "cancel_requested":
        raise ConflictProblem("illegal_transition", "the job was cancelled")
    if event.event_type in ("job_completed", "job_failed", "job_cancelled"):
        raise ended(event.event_type)
    return event.event_type == event_type and event.number == number


def answers_signal(correlation_key: str, payload: Any, event: ObservedEvent) -> bool:
    """Whether the event says that the signal, or one that is the same, is in the inbox.

    Raises:
        Conflict: another payload came first, or the job goes on no more.
    """
    if event.event_type == "signal_received" and event.correlation_key == correlation_key:
        if not _same(event.payload, payload):
            raise _used(correlation_key)
        return True
    if event.event_type in ("job_stopping", "job_completed", "job_failed", "job_cancelled"):
        raise ended(event.event_type)
    return False


def answers_resolve(command_id: str, key: str, event: ObservedEvent) -> bool:
    """Whether the event settles the step as the human said.

    Raises:
        Conflict: somebody else settled or reopened it first.
    """
    if event.caused_by == command_id:
        return True
    moved = ("tool_invocation_finished", "invocation_reopened", "invocation_rejected", "wait_completed")
    if event.idempotency_key == key and event.event_type in moved:
        raise ConflictProblem(
            "illegal_transition", f"the step was moved by {event.event_type} first", event=event.event_type
        )
    return False


@dataclass(slots=True)
class StepCancelled:
    """What the log answers to the cancel of one step."""

    key: str
    goes_on: bool = False
    """The step has moved since it was read, and has not ended: what would have ended it is void, the request counts."""

    def settles(self, command_id: str, event: ObservedEvent) -> bool:
        """Whether the event ends the step as asked, or keeps it from another try.

        Raises:
            Conflict: it ended otherwise first.
        """
        if event.idempotency_key != self.key:
            return False
        if event.event_type == "invocation_cancel_requested":
            return True
        if event.event_type in ("tool_invocation_started", "invocation_reopened") or event.outcome == _NOT_EXECUTED:
            self.goes_on = True
            return False
        if self.goes_on and event.caused_by == command_id:
            return False
        return answers_resolve(command_id, self.key, event)


_NOT_EXECUTED = Outcome.RETRYABLE.value
