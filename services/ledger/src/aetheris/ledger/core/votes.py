"""Yes to a call, where a rule asks for one or several: votes, signed or not, and what they come to; pure."""

from collections.abc import Sequence
from typing import Any

from aetheris.ledger.core import settlement
from aetheris.ledger.core.decisions import Emit, IdentifiedEvent, Now
from aetheris.ledger.core.live_jobs import DecisionContext
from aetheris.ledger.core.settlement import JobKey, written
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.approval_events import ApproverSignature
from aetheris.protocol.messages.commands import Respond
from aetheris.protocol.messages.event_values import Decision
from aetheris.protocol.planning.approval_text import ApprovalText, signed_request, signing_key, verified_votes
from aetheris.protocol.planning.approvals import votes_as_recorded, votes_that_count


def signature(
    job_key: JobKey,
    requested: ev.ApprovalRequested,
    command: Respond,
    data_hash: str | None,
    *,
    context: DecisionContext,
    now: Now,
) -> ApproverSignature | None:
    """His signature of what he says; None where the request needs none. `data_hash`: of what an edit makes.

    Raises:
        SignatureRefused: there is none that counts now.
    """
    if not requested.signed:
        return None
    asked = signed_request(job_key.job, job_key.key, requested)
    text = ApprovalText.by(command.speaker, asked, command.action, data_hash)
    key = signing_key(text, command.signature, context.signers, now.wall)
    return ApproverSignature(key=key, armored=command.signature or "")


def given(job_key: JobKey, context: DecisionContext, now: Now) -> tuple[ev.ApprovalVoted, ...]:
    """The votes about an open request; of those that must be signed, those that are."""
    return verified_votes(job_key.job, job_key.key, job_key.state, context.signers, now.wall)


def yes(
    job_key: JobKey,
    requested: ev.ApprovalRequested,
    command: Respond,
    command_id: str,
    *,
    signed: ApproverSignature | None,
    so_far: Sequence[ev.ApprovalVoted],
) -> Emit:
    """A decision, where one is enough; else a vote, and with the last one of those `so_far` the decision."""
    if requested.approvals is None or command.speaker.breaks_glass:
        return settlement.emit(job_key, decided(job_key, requested, command, command_id, signed=signed))
    vote = ev.ApprovalVoted(
        **_bound_to(job_key, requested),
        caused_by=command_id,
        approver=command.by,
        principal=command.recorded_principal,
        signature=signed,
        comment=command.comment,
    )
    voted = written(vote, job_key.key, command_id)
    end = _tallied(job_key, requested, (*so_far, vote))
    return settlement.emit(job_key, voted, *([end] if end is not None else []))


def tallied(job_key: JobKey, context: DecisionContext, now: Now) -> Emit | None:
    """The decision that the votes in the log come to; two may have come at once, and neither was the last."""
    requested = job_key.state.requested
    if requested is None or requested.approvals is None or not job_key.state.is_asking:
        return None
    end = _tallied(job_key, requested, given(job_key, context, now))
    return settlement.emit(job_key, end) if end is not None else None


def only_votes(emit: Emit) -> bool:
    """Whether the request stays open behind these events."""
    return all(isinstance(one.event, ev.ApprovalVoted | ev.ResolutionVoted) for one in emit.events)


def decided(
    job_key: JobKey,
    requested: ev.ApprovalRequested,
    command: Respond,
    command_id: str,
    *,
    signed: ApproverSignature | None,
    data: dict[str, Any] | None = None,
) -> IdentifiedEvent:
    """The answer, bound to what was shown: arguments, version and rule are the request's."""
    event = ev.ApprovalDecided(
        **_bound_to(job_key, requested),
        caused_by=command_id,
        decision=Decision(command.action),
        approver=command.by,
        principal=command.recorded_principal,
        signature=signed,
        comment=command.comment,
        data=data,
    )
    return written(event, job_key.key, command_id)


def _tallied(
    job_key: JobKey, requested: ev.ApprovalRequested, votes: Sequence[ev.ApprovalVoted]
) -> IdentifiedEvent | None:
    names = votes_that_count(requested, job_key.job.created, votes_as_recorded(votes))
    if not votes or len(names) < (requested.approvals or 1):
        return None
    last = next(vote for vote in reversed(votes) if vote.approver == names[-1])
    event = ev.ApprovalDecided(
        **_bound_to(job_key, requested),
        caused_by=last.caused_by,
        decision=Decision.APPROVE,
        approver=last.approver,
        principal=last.principal,
        signature=last.signature,
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
