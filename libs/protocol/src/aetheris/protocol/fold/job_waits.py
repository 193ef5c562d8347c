"""What a job waits for, from `job_waiting` to `wait_completed`: its own waits, and those of its nodes."""

from aetheris.protocol.fold.start import is_stopped
from aetheris.protocol.fold.state import NODE_WAITS, JobState, KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.plan.graph import AWAITED


def waiting(job: JobState, e: ev.JobWaiting, offset: int) -> bool:
    """A wait begins, once."""
    this = (e.wait_type, e.node_id, e.correlation_key)
    if this in job.waits or (_is_of_node(e) and not _begins(job, e)) or not _asks_somebody(job, e):
        return False
    job.waits.add(this)
    job.open_waits[e.wait_type, e.node_id] = e
    return True


def _asks_somebody(job: JobState, e: ev.JobWaiting) -> bool:
    """A wait for approval stands behind its question; where that came behind its call's start, nobody is waited for."""
    if e.wait_type != "approval" or e.node_id is None:
        return True
    return any(job.keys[key].is_asking for key in job.node_keys.get(e.node_id, ()))


def _is_of_node(e: ev.JobWaiting) -> bool:
    return e.node_id is not None and e.wait_type in NODE_WAITS


def _begins(job: JobState, e: ev.JobWaiting) -> bool:
    """A node's wait needs a node that waits, whose key is free, in a job that goes on."""
    if e.node_id is None or e.idempotency_key is None or job.terminal is not None:
        return False
    entry = job.entry(e.node_id)
    if entry is None or entry.node.kind not in AWAITED or is_stopped(job, entry):
        return False
    state = job.key(e.idempotency_key, e.node_id)
    if state.node_id != e.node_id or state.status is not KeyStatus.NONE or (e.wait_type, e.node_id) in job.open_waits:
        return False
    state.waits_for = e
    return True


def wait_completed(job: JobState, e: ev.WaitCompleted, offset: int) -> bool:
    """The first end of just this wait counts; a node's own settles its key, with the payload as the result."""
    waiting = job.open_waits.get((e.wait_type, e.node_id))
    if waiting is None or not _is_its_end(waiting, e):
        return False
    del job.open_waits[e.wait_type, e.node_id]
    if _is_of_node(waiting):
        state = job.keys[waiting.idempotency_key or ""]
        state.status, state.outcome, state.sure = KeyStatus.SETTLED, Settled.SUCCESS, False
        state.result, state.result_hash, state.wait_ended = e.payload, e.output_hash, e
    return True


def _is_its_end(waiting: ev.JobWaiting, e: ev.WaitCompleted) -> bool:
    """An end names its wait; of the job's own there is but one of a type, except for confirmations."""
    if not _is_of_node(waiting) and waiting.wait_type != "confirmation":
        return True
    return (waiting.correlation_key, waiting.idempotency_key) == (e.correlation_key, e.idempotency_key)


def waits_are_over(job: JobState, node_id: str) -> None:
    """Nothing is waited for any more at a node that is settled."""
    for wait_type in ("approval", "duplicate", "executor", "verifier", *NODE_WAITS):
        job.open_waits.pop((wait_type, node_id), None)
