"""The line of ledger.records that a settlement becomes: a view for downstream systems, never a source."""

from aetheris.protocol.fold.state import JobState, KeyState, Settled
from aetheris.protocol.messages.commands import LedgerRecord


def record_of(job: JobState, key: str, offset: int) -> LedgerRecord:
    """The record of a settled key, as of the settlement's offset in jobs.events."""
    state = job.keys[key]
    entry = job.entry(state.node_id)
    success = state.outcome is Settled.SUCCESS
    return LedgerRecord(
        invocation_id=state.settled_by or state.current_invocation or key,
        job_id=job.job_id,
        step_id=state.node_id,
        tool_name=entry.node.tool_name if entry is not None else "",
        args_hash=_args_hash(state),
        idempotency_key=key,
        status="success" if success else "failure",
        committed=success,
        attempt_id=state.external_attempt - 1,
        token=state.fencing_token,
        offset=offset,
        result=state.result,
        external_id=state.external_id,
    )


def _args_hash(state: KeyState) -> str:
    """Of the try in charge, or of what was put to a human; a call that was refused unseen has none."""
    if state.started is not None:
        return state.started.args_hash
    return state.requested.args_hash if state.requested is not None else ""
