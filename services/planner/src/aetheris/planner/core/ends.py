"""How a job stops and ends: cancelled, failed, undone, complete; and what its end carries of its results."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from aetheris.planner.core import compensation
from aetheris.planner.core.decisions import Append, NewEvent, Output, fact
from aetheris.planner.core.progress import JobProgress
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Cancel
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.invocation import is_done, success

MAX_RESULT_BYTES = 64 * 1024
"""What job_completed carries of the sink nodes' results; the rest is in their tool_invocation_finished."""


def cancelled(progress: JobProgress, command: Cancel, command_id: str) -> Append | None:
    """cancel_requested, with the job_stopping that makes it bind; nothing for a job that ends or is cancelled."""
    job, sent = progress.job, progress.sent
    if job.terminal is not None or job.cancel is not None or sent.end or sent.cancel:
        return None
    requested = ev.CancelRequested(
        job_id=job.job_id,
        caused_by=command_id,
        by=command.by,
        principal=command.recorded_principal,
        reason=command.reason,
        compensate=command.compensate,
    )
    facts = [NewEvent(requested, (command_id,)), *compensation.answered(progress, command_id)]
    if not progress.is_stopping and not (progress.is_undoing and command.compensate):
        stopping = ev.JobStopping(
            job_id=job.job_id, caused_by=command_id, by=command.by, reason="cancelled", up_to_revision=job.revision
        )
        facts.append(NewEvent(stopping, ("cancel", str(job.revision), command_id)))
        sent.stop = job.revision
    sent.cancel = True
    return Append(tuple(facts))


def stop(progress: JobProgress) -> Iterator[Output]:
    """After a failure; after that of a compensation; and where compensations came just before a cancel without."""
    job, failure = progress.job, progress.undo_failure if progress.is_undoing else progress.failure
    unwanted = job.cancel if progress.is_undoing and job.cancel is not None and not job.cancel.compensate else None
    if progress.is_stopping or (failure is None and unwanted is None):
        return
    progress.sent.stop = job.revision
    node_id = (failure.node_id if failure is not None else None) or ""
    by, reason = "planner", f"node {node_id} failed"
    if unwanted is not None:
        by, reason = unwanted.by, "cancelled"
    elif failure is not None and failure.node_id is None:
        reason = failure.reason
    stopping = ev.JobStopping(job_id=job.job_id, by=by, reason=reason, up_to_revision=job.revision)
    yield fact(stopping, "failure", str(job.revision), node_id)


def ended(progress: JobProgress) -> Iterator[Output]:
    """The end of a job that is complete, or of whose stop nothing is open any more; nothing until then."""
    end = _end(progress)
    if end is not None:
        yield end


def _end(progress: JobProgress) -> Append | None:
    """The end of a job: after a stop is in the log, nothing starts any more, so what is in flight can be waited for."""
    job = progress.job
    if job.stopping is not None:
        return None if progress.is_open else _stopped(progress)
    if progress.is_stopping or progress.failure is not None or not progress.is_complete:
        return None
    progress.sent.end = True
    return fact(ev.JobCompleted(job_id=job.job_id, result=_result(progress)), "end")


def _stopped(progress: JobProgress) -> Append | None:
    """Nothing is open any more: what was done is undone, or a human is asked, or the job ends."""
    if progress.is_undoing and not progress.has_undone:
        return None
    if progress.sent.cancel and progress.job.cancel is None:
        return None  # whether this is a failure or a cancel is decided by what the log says first
    undone = compensation.due(progress)
    if undone and progress.job.paused is not None:
        return None
    if undone and compensation.is_asked(progress):
        return compensation.question(progress)
    if undone:
        return compensation.plan(progress, undone)
    progress.sent.end = True
    return fact(_stopped_end(progress), "end")


def _stopped_end(progress: JobProgress) -> Event:
    job, failure, undo = progress.job, progress.failure, progress.undo_failure
    undone = compensation.undone(progress)
    if job.cancel is not None:
        return ev.JobCancelled(job_id=job.job_id, by=job.cancel.by, reason=job.cancel.reason, compensated=undone)
    reason = failure.reason if failure is not None else job.stopping.reason if job.stopping is not None else ""
    if undo is not None:
        reason += f"; its compensation {undo.node_id} failed: {undo.reason}"
    node_id = failure.node_id if failure is not None else None
    return ev.JobFailed(job_id=job.job_id, error=reason, node_id=node_id, compensated=undone)


def _result(progress: JobProgress) -> dict[str, Any]:
    """The results of the nodes that nothing follows, in declared order, as far as there are any and they are small."""
    found: dict[str, Any] = {}
    room = MAX_RESULT_BYTES
    for node_id in _sinks(progress):
        state = success(progress.job, node_id)
        size = len(json.dumps(state.result)) + len(node_id)
        if state.result_ref is None and size <= room:
            found[node_id] = state.result
            room -= size
    return found


def _sinks(progress: JobProgress) -> Iterable[str]:
    planned = (node_id for node_id, followers in progress.graph.successors.items() if not followers)
    return (node_id for node_id in planned if not progress.is_call(node_id) and is_done(progress.job, node_id))
