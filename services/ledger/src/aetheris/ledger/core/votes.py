"""Yes to a call, where a rule asks for one or several: votes, and the one decision that they come to; pure."""

from typing import Any

from aetheris.ledger.core import settlement
from aetheris.ledger.core.decisions import Emit, IdentifiedEvent
from aetheris.ledger.core.settlement import JobKey, written
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Respond
from aetheris.protocol.messages.event_values import Decision
from aetheris.protocol.planning.approvals import votes_that_count


def yes(job_key: JobKey, requested: ev.ApprovalRequested, command: Respond, command_id: str) -> Emit:
    """A decision, where one is enough; else a vote, and with the last one the decision."""
    if requested.approvals is None or command.speaker.breaks_glass:
        return settlement.emit(job_key, decided(job_key, requested, command, command_id))
    vote = ev.ApprovalVoted(
        **_bound_to(job_key, requested),
        caused_by=command_id,
        approver=command.by,
        principal=command.recorded_principal,
        comment=command.comment,
    )
    voted = written(vote, job_key.key, command_id)
    end = _tallied(job_key, requested, (*job_key.state.votes, vote))
    return settlement.emit(job_key, voted, *([end] if end is not None else []))


def tallied(job_key: JobKey) -> Emit | None:
    """The decision that the votes in the log come to; two may have come at once, and neither was the last."""
    requested = job_key.state.requested
    if requested is None or requested.approvals is None or not job_key.state.is_asking:
        return None
    end = _tallied(job_key, requested, job_key.state.votes)
    return settlement.emit(job_key, end) if end is not None else None


def only_votes(emit: Emit) -> bool:
    """Whether the request stays open behind these events."""
    return all(isinstance(one.event, ev.ApprovalVoted) for one in emit.events)


def decided(
    job_key: JobKey,
    requested: ev.ApprovalRequested,
    command: Respond,
    command_id: str,
    data: dict[str, Any] | None = None,
) -> IdentifiedEvent:
    """The answer, bound to what was shown: arguments, version and rule are the request's."""
    event = ev.ApprovalDecided(
        **_bound_to(job_key, requested),
        caused_by=command_id,
        decision=Decision(command.action),
        approver=command.by,
        principal=command.recorded_principal,
        comment=command.comment,
        data=data,
    )
    return written(event, job_key.key, command_id)


def _tallied(
    job_key: JobKey, requested: ev.ApprovalRequested, votes: tuple[ev.ApprovalVoted, ...]
) -> IdentifiedEvent | None:
    names = votes_that_count(requested, job_key.job.created, votes)
    if not votes or len(names) < (requested.approvals or 1):
        return None
    last = next(vote for vote in reversed(votes) if vote.approver == names[-1])
    event = ev.ApprovalDecided(
        **_bound_to(job_key, requested),
        caused_by=last.caused_by,
        decision=Decision.APPROVE,
        approver=last.approver,
        principal=last.principal,
        votes=names,
        comment=last.comment,
    )
    return written(event, job_key.key, "votes", str(requested.generation))


def _bound_to(job_key: JobKey, requested: ev.ApprovalRequested) -> dict[str, Any]:
    return {
        "job_id": job_key.job.job_id,
        "node_id": job_key.state.node_id,
        "idempotency_key": job_key.key,
        "args_hash": requested.args_hash,
        "tool_version": requested.tool_version,
        "rule": requested.rule,
        "token": requested.token,
    }
