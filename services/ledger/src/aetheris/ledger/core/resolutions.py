"""What people say of a parked call, or of what could not be confirmed, where several must. Pure.

A word is a vote; the last one that is needed settles nothing by itself: what the log's votes come to does.
"""

from aetheris.ledger.core import confirmations, settlement, waits
from aetheris.ledger.core.decisions import Emit
from aetheris.ledger.core.settlement import JobKey, written
from aetheris.protocol.fold.state import JobState, KeyStatus
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Resolve, Signal
from aetheris.protocol.planning.approvals import deciders_of, resolvers
from aetheris.protocol.planning.resolutions import agreed, words_on_confirmation, words_on_parked


def is_vote(job_key: JobKey, command: Resolve) -> bool:
    """Whether others must say the same. What is tried again is approved anew, by as many; an emergency is one's own."""
    several = resolvers(job_key.job, job_key.state).approvals > 1
    return several and command.verdict != "retry" and not command.speaker.breaks_glass


def voted(job_key: JobKey, command: Resolve, command_id: str) -> Emit:
    """A word on a parked call."""
    kept, output_hash, blobs = (
        settlement.result_as_recorded(command) if command.verdict == "happened" else ({}, None, ())
    )
    vote = ev.ResolutionVoted(
        job_id=job_key.job.job_id,
        caused_by=command_id,
        node_id=job_key.state.node_id,
        idempotency_key=job_key.key,
        invocation_id=job_key.invocation_id,
        verdict="happened" if command.verdict == "happened" else "not_executed",
        by=command.by,
        as_of=command.as_of,
        principal=command.recorded_principal,
        evidence=command.evidence,
        output_hash=output_hash,
        **kept,
    )
    return settlement.emit(job_key, written(vote, job_key.key, command_id), blobs=blobs)


def accepts(job: JobState, command: Signal, command_id: str) -> Emit:
    """A word on what could not be confirmed: the end of the wait, or a vote where others must say it, too."""
    waiting = job.open_waits[confirmations.WAIT, None]
    if deciders_of(waiting).approvals > 1:
        vote = ev.ResolutionVoted(
            job_id=job.job_id,
            caused_by=command_id,
            correlation_key=command.correlation_key,
            verdict="accepted",
            by=command.by,
            principal=command.recorded_principal,
            result=command.payload,
        )
        return Emit(job.job_id, (written(vote, command.correlation_key, command_id),))
    end = confirmations.accepted(job, command, command_id)
    reported = waits.kept(job, command, command_id)
    return Emit(job.job_id, (reported, written(end, command.correlation_key, command_id)))


def settled(job: JobState, key: str) -> Emit | None:
    """What the votes on a parked call come to; None as long as they are too few, or it is parked no more."""
    job_key = JobKey(job, key, job.keys[key])
    if job_key.state.status is not KeyStatus.PARKED:
        return None
    words = agreed(resolvers(job, job_key.state), words_on_parked(job, job_key.state))
    return settlement.by_votes(job_key, words) if words else None


def accepted(job: JobState) -> Emit | None:
    """What the votes on what could not be confirmed come to; None as long as they are too few, or nobody is asked."""
    waiting = job.open_waits.get((confirmations.WAIT, None))
    if waiting is None or waiting.correlation_key in job.signals:
        return None
    words = agreed(deciders_of(waiting), words_on_confirmation(job, waiting))
    if not words:
        return None
    last, named = words[-1], waiting.correlation_key or ""
    signal = ev.SignalReceived(
        job_id=job.job_id,
        caused_by=last.caused_by,
        correlation_key=named,
        payload=last.result,
        command_id=last.caused_by or "",
    )
    end = ev.WaitCompleted(
        job_id=job.job_id,
        caused_by=last.caused_by,
        wait_type=confirmations.WAIT,
        correlation_key=named,
        payload=last.result,
        command_id=last.caused_by,
        by=last.by,
        principal=last.principal,
        votes=tuple(word.by for word in words),
    )
    return Emit(job.job_id, (written(signal, named, "votes"), written(end, named, "votes")))
