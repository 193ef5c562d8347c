"""Requests to humans about calls: asked for, answered, expired (docs/approvals.md). One group of events each."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from aetheris.ledger.core import settlement, votes
from aetheris.ledger.core.budgets import due_after
from aetheris.ledger.core.decisions import Emit, IdentifiedEvent, Now
from aetheris.ledger.core.duplicate_index import scope_key
from aetheris.ledger.core.live_jobs import DecisionContext, LiveJob, PendingApproval
from aetheris.ledger.core.settlement import JobKey, written
from aetheris.ledger.core.waits import UNFIT
from aetheris.protocol.base import recordable
from aetheris.protocol.base.canonical import InvalidArgs
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.base.references import pointer_part
from aetheris.protocol.fold.state import KeyState, PlanEntry
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.approval_events import ApproverSignature
from aetheris.protocol.messages.commands import Respond
from aetheris.protocol.messages.event_values import Observed, RejectReason
from aetheris.protocol.plan.forms import AnswerRefused, NamedPerson, fields_of
from aetheris.protocol.plan.graph import dependencies
from aetheris.protocol.planning.approval_text import SignatureRefused
from aetheris.protocol.planning.approvals import (
    changed_by,
    edited,
    had_before,
    may_not_answer,
    recorded,
    request_id,
    votes_as_recorded,
)
from aetheris.protocol.planning.continuation import done_before
from aetheris.protocol.planning.invocation import Invocation, call_with
from aetheris.protocol.planning.personal_fields import PersonalRefused, personal_fields
from aetheris.protocol.planning.policy import PolicyEffect, PolicyVerdict, Rule
from aetheris.protocol.planning.policy_facts import policy_facts
from aetheris.protocol.planning.schemas import Schema

_ACTIONS: Mapping[str, Mapping[str, str]] = {
    "approve": {"label": "Approve", "style": "primary"},
    "edit": {"label": "Change", "style": "secondary"},
    "reject": {"label": "Reject", "style": "danger"},
}


SHOWN_DUPLICATES = 20


def ask_human(
    job_key: JobKey,
    call: Invocation,
    rule: Rule,
    cost: float | None,
    *,
    context: DecisionContext,
    now: Now,
    observed: tuple[Observed, ...] = (),
) -> Emit:
    """approval_requested and job_waiting: from here on the log waits, not the request.

    Of a call that is retried by hand too: whatever the rule's effect, its approvers decide anew about this very try,
    and who edited the call is none of them.
    """
    asking = _requested(
        job_key,
        call,
        rule,
        cost,
        context=context,
        form_at=now.wall.isoformat(),
        expires_at=due_after(now, rule.expires_s),
        edited_by=next((asked.edited_by for asked, _ in reversed(job_key.state.answered)), None),
        observed=observed,
    )
    return settlement.emit(job_key, *asking)


def answer(
    job: LiveJob,
    key: str,
    asked: PendingApproval,
    command: Respond,
    command_id: str,
    *,
    context: DecisionContext,
    now: Now,
) -> Emit | str:
    """What a human's answer becomes, or why it decides nothing and the request stays open."""
    job_key = JobKey(job.state, key, job.state.keys[key])
    requested = job_key.state.requested
    open_request = requested and request_id(job.state.job_id, job_key.state.node_id, key, requested.generation)
    if requested is None or command.request_id != open_request:
        return "another request about the call is open"
    try:
        signed = votes.signature(job_key, requested, command, _edit_hash(requested, command), context=context, now=now)
    except SignatureRefused as error:
        return str(error)
    so_far, key_used = votes.given(job_key, context, now), signed.key if signed is not None else None
    owner, given = job.state.created, votes_as_recorded(so_far)
    may_not = may_not_answer(requested, command.action, owner, command.speaker, given, key=key_used)
    if may_not is not None:
        return may_not
    if is_past(requested, now):
        return expired(job_key, requested, caused_by=command_id)
    entry = job.state.entry(job_key.state.node_id)
    if entry is None or not entry.same_as(asked.entry):  # by another planner: ours replaces nothing that was asked for
        mismatch = _rejected(job_key, RejectReason.APPROVAL_MISMATCH, "the plan has changed", command_id)
        return settlement.emit(job_key, mismatch)
    if command.action == "approve":
        return votes.yes(job_key, requested, command, command_id, signed=signed, so_far=so_far)
    if command.action == "edit":
        if job_key.state.needs_yes:
            return "what was tried may have acted: other arguments would be a second call of the step"
        return _edit(job, job_key, entry, command, command_id, signed=signed, context=context, now=now)
    no = _rejected(job_key, RejectReason.APPROVAL, "a human said no", command_id)
    return settlement.emit(job_key, votes.decided(job_key, requested, command, command_id, signed=signed), no)


def _edit_hash(requested: ev.ApprovalRequested, command: Respond) -> str | None:
    """Of the arguments that an edit makes, as args_hash is made; None where it makes none."""
    if not requested.signed or command.action != "edit":
        return None
    try:
        return args_hash(changed_by(requested, command.data, hidden=True))
    except (AnswerRefused, InvalidArgs):
        return None


def expired(job_key: JobKey, requested: ev.ApprovalRequested, caused_by: str | None = None) -> Emit:
    """Nobody answered in time."""
    no = _rejected(job_key, RejectReason.EXPIRED, f"nobody answered until {requested.expires_at}", caused_by)
    return settlement.emit(job_key, no)


def is_past(requested: ev.ApprovalRequested, now: Now) -> bool:
    """Whether a request has expired by this process's clock."""
    return requested.expires_at is not None and now.wall >= datetime.fromisoformat(requested.expires_at)


def _edit(
    job: LiveJob,
    job_key: JobKey,
    entry: PlanEntry,
    command: Respond,
    command_id: str,
    *,
    signed: ApproverSignature | None,
    context: DecisionContext,
    now: Now,
) -> Emit | str:
    """A new call of the same node, which needs an approval of its own; the old one is rejected.

    The new key comes before the old one's rejection, so that nobody takes the node for settled in between.
    """
    if not context.may_judge(job):
        return "the policy in force can't be used by this ledger yet: nothing is asked of it"
    requested = job_key.state.requested
    schema = _pinned_schema(entry, context)
    if requested is None or schema is None:
        return "the schema that the tool was pinned with is not registered any more"
    try:
        args = edited(requested, schema, command.data, hidden=True)
    except AnswerRefused:
        return UNFIT
    node = entry.node.model_copy(update={"args": args, "depends_on": dependencies(entry.node)})
    call = call_with(job.state, PlanEntry(entry.revision, node, entry.pin), {})
    before = had_before(job.state, call.node_id, entry.node.tool_name, args)
    if before is not None:
        return before
    done = done_before(job.state, entry, call.content_key)
    if done is not None:
        return f"{done.node_id} of {done.job_id}, which the job continues, did just that"
    new = JobKey(job.state, call.key, KeyState(call.node_id))
    verdict = context.rules.verdict(entry.node.tool_name, entry.irreversible, lambda: policy_facts(job.state, call))
    decided = votes.decided(job_key, requested, command, command_id, signed=signed, data=args)
    old = _rejected(job_key, RejectReason.EDITED, "a human edited the call", command_id)
    over = _refusal(job, job_key, call, verdict)
    if over is not None:
        refused = _rejected(new, *over, command_id, context.named)
        return settlement.emit(job_key, decided, refused, old)
    rule = verdict.rule if verdict.effect is PolicyEffect.APPROVAL else _as_before(requested, context)
    cost = rule.budget.cost(call.args) if rule.budget is not None else 1.0 if rule.is_limited else None
    asking = _requested(
        new,
        call,
        rule,
        cost,
        context=context,
        form_at=now.wall.isoformat(),
        expires_at=due_after(now, rule.expires_s),
        caused_by=command_id,
        edited_by=command.by,
        observed=verdict.observed,
    )
    return settlement.emit(job_key, decided, asking[0], old, asking[1])


def _refusal(
    job: LiveJob, job_key: JobKey, call: Invocation, verdict: PolicyVerdict
) -> tuple[RejectReason, str] | None:
    """Why the policy will not have the call that an edit makes."""
    if verdict.effect is PolicyEffect.DENY:
        return RejectReason.POLICY, verdict.detail
    rule = verdict.rule
    if rule.budget is None:
        return None
    cost = rule.budget.cost(call.args)
    if cost is None:
        return RejectReason.BUDGET, f"{rule.name}: no such amount in the arguments"
    if not job.account(rule.name).allows(rule, call.key, cost, instead_of=job_key.key):
        return RejectReason.BUDGET, rule.name
    return None


def _as_before(requested: ev.ApprovalRequested, context: DecisionContext) -> Rule:
    """The rule that asked for the first approval: what a human has changed, a human approves."""
    for rule in context.rules.rules:
        if rule.name == requested.rule and rule.effect is PolicyEffect.APPROVAL:
            return rule
    return Rule.model_construct(  # as it is recorded, with roles that only a newer version knows
        name=requested.rule,
        tools=("*",),
        effect=PolicyEffect.APPROVAL,
        approvers=requested.approvers,
        approver_roles=requested.approver_roles,
        approver_kinds=requested.approver_kinds,
        persons=False if requested.approver_kinds is None else None,
        approvals=requested.approvals or 1,
        self_approval=bool(requested.self_approval),
        signed=bool(requested.signed),
    )


def _requested(
    job_key: JobKey,
    call: Invocation,
    rule: Rule,
    cost: float | None,
    *,
    context: DecisionContext,
    form_at: str,
    expires_at: str | None,
    caused_by: str | None = None,
    edited_by: str | None = None,
    observed: tuple[Observed, ...] = (),
) -> tuple[IdentifiedEvent, IdentifiedEvent]:
    token, deciders = job_key.state.asks, rule.deciders(irreversible=call.entry.irreversible)
    request = request_id(job_key.job.job_id, call.node_id, job_key.key, token)
    requested = ev.ApprovalRequested(
        job_id=job_key.job.job_id,
        caused_by=caused_by,
        node_id=call.node_id,
        idempotency_key=job_key.key,
        args_hash=call.args_hash,
        tool_version=call.entry.tool_version,
        **recorded(deciders),
        observed=observed or None,
        **context.named,
        form=_form(request, job_key, call, context, created_at=form_at, expires_at=expires_at),
        expires_at=expires_at,
        edited_by=edited_by,
        cost=cost,
        token=_named(token),
    )
    waiting = ev.JobWaiting(
        job_id=job_key.job.job_id,
        caused_by=caused_by,
        wait_type="approval",
        node_id=call.node_id,
        correlation_key=request,
        due_at=expires_at,
    )
    cause = (job_key.key,) if token == 1 else (job_key.key, str(token))
    return written(requested, *cause), written(waiting, *cause)


def _named(token: int) -> int | None:
    """What the log says of a token: nothing of the first."""
    return token if token != 1 else None


def _form(
    request: str,
    job_key: JobKey,
    call: Invocation,
    context: DecisionContext,
    *,
    created_at: str,
    expires_at: str | None,
) -> dict[str, Any]:
    """What a human is shown, and can change; the answer is held against this, never against what a client says."""
    job, entry = job_key.job, call.entry
    tool, again = entry.node.tool_name, job_key.state.needs_yes
    schema = _pinned_schema(entry, context) or {}
    shown = recordable.shown(call.args)
    editable = fields_of(schema, call.args, _personal(schema)) if shown is call.args and not again else ()
    fields = [field.model_dump(mode="json", exclude_defaults=True) for field in editable]
    actions = {name: look for name, look in _ACTIONS.items() if fields or name != "edit"}
    return {
        "id": request,
        "type": "form" if fields else "confirmation",
        "title": f"Run {tool} again?" if again else f"Run {tool}?",
        "description": f"Step {call.node_id} calls {tool}"
        + (", which can't be undone." if entry.irreversible else ".")
        + (f" It was tried {job_key.state.invocation_count} times, and may have acted already." if again else ""),
        "fields": fields,
        "actions": actions,
        "context": {
            "job_id": job.job_id,
            "node_id": call.node_id,
            "tenant": job.created.tenant,
            "submitted_by": job.created.submitted_by,
            "tool": tool,
            "tool_version": entry.tool_version,
            "arguments": shown,
            **_duplicates(job_key, call, context),
        },
        "created_at": created_at,
        "expires_at": expires_at,
    }


def _personal(schema: Schema) -> dict[str, str | NamedPerson]:
    """The arguments that are a person's, and whose; of members of arguments a form has no fields."""
    try:
        found = personal_fields(schema)
    except PersonalRefused:
        return {}
    whose = {one.at: NamedPerson(name=one.subject) if one.named else one.subject for one in found}
    return {name: whose[at] for name in schema.get("properties", {}) if (at := pointer_part(name)) in whose}


def _duplicates(job_key: JobKey, call: Invocation, context: DecisionContext) -> dict[str, Any]:
    """The equal calls of other jobs that are under way, or of which nobody knows; nothing where there are none."""
    scope = scope_key(job_key.job, call.entry, call.content_key, call.entry.node.occurrence)
    lines = context.duplicates.standing(job_key.job.job_id, scope) if scope is not None else []
    rows = [{"job_id": line.job_id, "node_id": line.node_id, "state": line.state} for line in lines[:SHOWN_DUPLICATES]]
    return {"duplicates": rows} if rows else {}


def _pinned_schema(entry: PlanEntry, context: DecisionContext) -> Schema | None:
    """The schema that the plan was pinned with; None where the registry has it no more."""
    if entry.pin is None:
        return None
    found = context.registered(entry.node.tool_name, entry.pin.version)
    return found.schema_ if found is not None and found.schema_hash == entry.pin.schema_hash else None


def _rejected(
    job_key: JobKey,
    reason: RejectReason,
    detail: str,
    caused_by: str | None,
    by_policy: Mapping[str, Any] | None = None,
) -> IdentifiedEvent:
    event = ev.InvocationRejected(
        job_id=job_key.job.job_id,
        caused_by=caused_by,
        node_id=job_key.state.node_id,
        idempotency_key=job_key.key,
        reason=reason,
        detail=detail,
        **(by_policy or {}),
    )
    return written(event, job_key.key, reason)
