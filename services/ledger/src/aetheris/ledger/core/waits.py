"""Nodes that wait: for a signal, a time or a human (docs/waits.md). Pure; the clock's word becomes an event."""

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from aetheris.ledger.core import settlement
from aetheris.ledger.core.decisions import Emit, IdentifiedEvent, Now
from aetheris.ledger.core.settlement import JobKey, written
from aetheris.protocol.base import recordable
from aetheris.protocol.fold.bodies import keeps_signal, may_await
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import JobEnded, Respond, Signal
from aetheris.protocol.messages.event_values import RejectReason, WaitType
from aetheris.protocol.plan.forms import AnswerRefused, FormSpec, answers
from aetheris.protocol.plan.graph import Kind, Wait
from aetheris.protocol.planning.approvals import fields_in, may_not_answer, request_id
from aetheris.protocol.planning.invocation import Invocation
from aetheris.protocol.planning.personal_fields import is_hidden

_ACTIONS: Mapping[str, Mapping[str, str]] = {
    "approve": {"label": "Send", "style": "primary"},
    "reject": {"label": "Refuse", "style": "danger"},
}

WAIT_TYPES: Mapping[Kind, WaitType] = {Kind.WAIT: "signal", Kind.TIMER: "timer", Kind.HUMAN: "human"}

UNFIT = "the answer does not fit the form"
"""Why an answer decides nothing; what was said in it is for nobody's log."""


def begun(job_key: JobKey, call: Invocation, now: Now) -> Emit:
    """The node waits from here on; its due time is computed once, and is in the log."""
    node = call.entry.node
    wait = node.wait or Wait()
    due_at = _due_at(wait, now)
    event = ev.JobWaiting(
        job_id=job_key.job.job_id,
        wait_type=WAIT_TYPES[node.kind],
        node_id=node.id,
        idempotency_key=job_key.key,
        correlation_key=wait.key or request_id(job_key.job.job_id, node.id, job_key.key),
        due_at=due_at,
        form=_form(job_key, call, node.form, now, due_at) if node.form is not None else None,
        approvers=node.form.approvers if node.form is not None else None,
    )
    return settlement.emit(job_key, written(event, job_key.key))


def answered(job_key: JobKey, waiting: ev.JobWaiting, command: Respond, command_id: str) -> Emit | str:
    """What a human said to a form of the plan, or why it decides nothing."""
    if waiting.form is None:
        return UNFIT
    may_not = may_not_answer(waiting, command.action, job_key.job.created, command.speaker)
    if may_not is not None:
        return may_not
    if command.action == "reject":
        return settlement.emit(job_key, refused(job_key, command, command_id))
    try:
        data = answers(fields_in(waiting.form), command.data, hidden=True) if command.action == "approve" else None
    except AnswerRefused:
        data = None
    if data is None:
        return UNFIT
    return settlement.emit(job_key, ended(job_key, waiting, data, command_id, said=command))


def refused(job_key: JobKey, command: Respond, command_id: str) -> IdentifiedEvent:
    """A human will not answer."""
    event = ev.InvocationRejected(
        job_id=job_key.job.job_id,
        caused_by=command_id,
        node_id=job_key.state.node_id,
        idempotency_key=job_key.key,
        reason=RejectReason.APPROVAL,
        detail="a human said no",
        by=command.by,
        principal=command.recorded_principal,
        comment=command.comment,
    )
    return written(event, job_key.key, event.reason)


def ended(
    job_key: JobKey,
    waiting: ev.JobWaiting,
    payload: Any,
    command_id: str | None = None,
    *,
    said: Respond | None = None,
) -> IdentifiedEvent:
    """What was waited for has come; the payload is the node's result."""
    result, data = recordable.result(payload)
    event = ev.WaitCompleted(
        job_id=job_key.job.job_id,
        caused_by=command_id,
        wait_type=waiting.wait_type,
        node_id=waiting.node_id,
        idempotency_key=job_key.key,
        correlation_key=waiting.correlation_key,
        payload=result,
        output_hash=hashlib.sha256(data).hexdigest(),
        command_id=command_id,
        by=said.by if said is not None else None,
        principal=said.recorded_principal if said is not None else None,
        comment=said.comment if said is not None else None,
    )
    return written(event, job_key.key, command_id or waiting.wait_type)


def overdue(job_key: JobKey, waiting: ev.JobWaiting) -> Emit:
    """Its time has come: that is what a timer waits for, and the end of any other wait."""
    if waiting.wait_type == "timer":
        return settlement.emit(job_key, ended(job_key, waiting, None))
    return settlement.rejected(job_key, RejectReason.EXPIRED, f"nothing came until {waiting.due_at}")


ANOTHER: WaitType = "duplicate"
"""The wait for a call of another job that means the same: it is under way, and came first."""


def for_another(job_key: JobKey, node_id: str, named: str) -> IdentifiedEvent:
    """The call waits for an equal one, of the job and node that are named."""
    event = ev.JobWaiting(job_id=job_key.job.job_id, wait_type=ANOTHER, node_id=node_id, correlation_key=named)
    return written(event, job_key.key, ANOTHER, named)


def another_ended(job_key: JobKey, node_id: str, waiting: ev.JobWaiting) -> IdentifiedEvent:
    """It is known what became of that one."""
    named = waiting.correlation_key
    event = ev.WaitCompleted(job_id=job_key.job.job_id, wait_type=ANOTHER, node_id=node_id, correlation_key=named)
    return written(event, job_key.key, ANOTHER, named or "")


EXECUTOR: WaitType = "executor"
"""The wait for an executor that serves a call's tool."""

AGAIN = "#"
"""Between what a call waits for, and how often it has."""


def for_executor(job_key: JobKey, node_id: str, needed: str) -> IdentifiedEvent:
    """No executor serves what the call needs; each of a node's waits has a name of its own."""
    before = sum((kind, node) == (EXECUTOR, node_id) for kind, node, _ in job_key.job.waits)
    named = f"{needed}{AGAIN}{before + 1}" if before else needed
    event = ev.JobWaiting(job_id=job_key.job.job_id, wait_type=EXECUTOR, node_id=node_id, correlation_key=named)
    return written(event, job_key.key, EXECUTOR, named)


def executor_found(job_key: JobKey, node_id: str, waiting: ev.JobWaiting) -> IdentifiedEvent:
    """An executor serves it."""
    named = waiting.correlation_key
    event = ev.WaitCompleted(job_id=job_key.job.job_id, wait_type=EXECUTOR, node_id=node_id, correlation_key=named)
    return written(event, job_key.key, EXECUTOR, named or "")


def kept(job: JobState, command: Signal, command_id: str) -> IdentifiedEvent:
    """A signal in the inbox of its job; it stays there until its node waits for it."""
    event = ev.SignalReceived(
        job_id=job.job_id,
        caused_by=command_id,
        correlation_key=command.correlation_key,
        payload=command.payload,
        command_id=command_id,
    )
    return written(event, command.correlation_key, command_id)


def takes(job: JobState, command: Signal) -> bool:
    """Whether the plan in force has a node that waits for this key, and what is personal of the payload is hidden.

    What a body has not asked for yet is kept for it, as far as there is room; the ends of its jobs always.
    """
    waits = (entries[-1].node.wait for entries in job.entries.values())
    wait = next((one for one in waits if one is not None and one.key == command.correlation_key), None)
    if wait is None:
        return may_await(job) and (isinstance(command, JobEnded) or keeps_signal(job))
    return is_hidden(wait, command.payload)


def longest_s(job: JobState, node_id: str) -> float:
    """How long a node's wait takes at most, whatever clock its due time was written by."""
    entry = job.entry(node_id)
    seconds = _seconds(entry.node.wait) if entry is not None and entry.node.wait is not None else None
    return seconds if seconds is not None else float("inf")


def _seconds(wait: Wait) -> float | None:
    return wait.for_s if wait.for_s is not None else wait.timeout_s


def _due_at(wait: Wait, now: Now) -> str | None:
    seconds = _seconds(wait)
    if seconds is None:
        return wait.until
    return (now.wall + timedelta(seconds=seconds)).isoformat()


def _form(job_key: JobKey, call: Invocation, spec: FormSpec, now: Now, expires_at: str | None) -> dict[str, Any]:
    """The plan's form as a request; the node's arguments are shown beside it."""
    created = job_key.job.created
    return {
        "id": request_id(job_key.job.job_id, call.node_id, job_key.key),
        "type": "form" if spec.fields else "confirmation",
        "title": spec.title,
        "description": spec.description,
        "fields": [field.model_dump(mode="json", exclude_defaults=True) for field in spec.fields],
        "actions": _ACTIONS,
        "context": {
            "job_id": job_key.job.job_id,
            "node_id": call.node_id,
            "tenant": created.tenant,
            "submitted_by": created.submitted_by,
            "arguments": call.args,
        },
        "created_at": now.wall.isoformat(),
        "expires_at": expires_at,
    }
