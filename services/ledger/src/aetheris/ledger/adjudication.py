"""Whether a call may run next, in the order of docs/architecture.md: settled, refused, asked for, granted."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from aetheris.ledger import settlement
from aetheris.ledger.decisions import Emit, Facts, Grant, Now
from aetheris.ledger.doubt import caught_up
from aetheris.ledger.memory import LiveJob, Pending, Reopened, Step, Terms
from aetheris.ledger.policy import PolicyEffect, Rule
from aetheris.ledger.settlement import Key, written
from aetheris.protocol import events as ev
from aetheris.protocol.canonical import InvalidArgs
from aetheris.protocol.commands import ToolGrant
from aetheris.protocol.events import Decision, RejectReason
from aetheris.protocol.fold import IN_FLIGHT, Entry, JobState, KeyState, Settled, St
from aetheris.protocol.ids import derived, execution_id
from aetheris.protocol.invocation import Invocation, NotReady, blobs_needed, invocation
from aetheris.protocol.plan import RUNNABLE, Retry
from aetheris.protocol.references import UnresolvedReference

LONGEST_RUN = 200
"""Nodes of a grant."""

RARER_AT_MOST = 8
"""Lease TTLs between two grants that nobody takes up; a grant waits in the log, so this is for lost ones only."""


@dataclass(frozen=True, slots=True)
class Hurdle:
    """Why a key can't start now; `final`: nor ever."""

    reason: RejectReason
    detail: str
    final: bool = True


def adjudicate(job: LiveJob, node_id: str, pending: Pending, *, terms: Terms, facts: Facts, now: Now) -> Step:
    """What becomes of a requested node; a Step without a due time discharges the request."""
    entry = job.state.entry(node_id)
    if entry is None or is_closed(job.state) or _is_known(job.state, node_id):
        return Step()
    again_s = now.mono_s + terms.limits.lease_ttl_s
    try:
        if any(ref.sha256 not in facts.blobs for ref in blobs_needed(job.state, entry)):
            return Step((), again_s)
        call = invocation(job.state, entry, facts.blobs)
    except (NotReady, UnresolvedReference, InvalidArgs):
        return Step()  # the planner asks when it is ready; what can't be resolved it ends by itself
    of = Key(job.state, call.key, job.state.keys.get(call.key) or KeyState(node_id))
    if of.state.st is not St.NONE:
        return Step()
    rule = terms.policy.rule_for(entry.node.tool_name, entry.irreversible)
    if rule.effect is PolicyEffect.DENY:
        return Step((settlement.rejected(of, RejectReason.POLICY, rule.name),), again_s)
    hurdle = _hurdle(of, entry, call.content_key)
    if hurdle is not None:
        return Step((settlement.rejected(of, hurdle.reason, hurdle.detail),) if hurdle.final else (), again_s)
    return _allow(of, call, rule, pending, terms=terms, now=now)


def again(of: Key, free: Reopened, *, terms: Terms, facts: Facts, now: Now) -> Step:
    """The next try of a reopened key; a Step without a due time waits for the fold."""
    again_s = now.mono_s + terms.limits.lease_ttl_s
    effect = caught_up(of, facts)
    if effect is not None:
        return Step((effect,), again_s)
    hurdle = stopped(of) or _hurdle(of, _entry(of), of.started.content_key)
    if hurdle is not None:
        return Step((settlement.failed(of, hurdle.detail),) if hurdle.final else (), again_s)
    if free.after_proof and of.state.retry_due is None:
        return _schedule(of, free, terms, now)
    free.grants += 1
    granted = _grant((of.state.node_id,), of, terms, None)
    return Step((granted,), now.mono_s + _rarer(terms, free.grants))


def is_closed(job: JobState) -> bool:
    """Whether nothing of the revision in force may start any more."""
    return job.terminal is not None or (job.stopping is not None and job.revision <= job.stopping.up_to_revision)


def stopped(of: Key) -> Hurdle | None:
    """What the job's course has decided about a key that started before."""
    if is_closed(of.job):
        return Hurdle(RejectReason.CANCELLED, "the job is stopping")
    named, current = of.job.entry(of.state.node_id, of.started.revision), of.job.entry(of.state.node_id)
    if named is None or current is None or not named.same_as(current):
        return Hurdle(RejectReason.CANCELLED, "the plan has changed")
    return None


def _is_known(job: JobState, node_id: str) -> bool:
    """Settled in the log, or running elsewhere: nothing to do, its end arrives as an event."""
    if job.settled_key(node_id) is not None:
        return True
    return any(job.keys[key].st in IN_FLIGHT for key in job.node_keys.get(node_id, ()))


def _entry(of: Key) -> Entry:
    entry = of.job.entry(of.state.node_id)
    if entry is None:
        raise LookupError("a started key's node is in the plan")
    return entry


def _hurdle(of: Key, entry: Entry, content_key: str) -> Hurdle | None:
    """A human's no, another key of the node, the same irreversible call: what the fold would call void."""
    decision = of.state.decision
    if decision is not None and decision.decision is not Decision.APPROVE:
        reason = RejectReason.EDITED if decision.decision is Decision.EDIT else RejectReason.APPROVAL
        return Hurdle(reason, "a human said no" if reason is RejectReason.APPROVAL else "a human edited the call")
    others = (key for key in of.job.node_keys.get(of.state.node_id, ()) if key != of.key)
    taken = _blocked_by(of.job, others, RejectReason.CANCELLED, "another call of the node stands")
    if taken is not None or not entry.irreversible:
        return taken
    same = (key for key in of.job.contents.get((content_key, entry.node.occurrence), ()) if key != of.key)
    return _blocked_by(of.job, same, RejectReason.DUPLICATE_OF, None)


def _blocked_by(job: JobState, keys: Iterable[str], reason: RejectReason, detail: str | None) -> Hurdle | None:
    for key in keys:
        other = job.keys[key]
        if other.st in IN_FLIGHT:
            return Hurdle(reason, detail or other.node_id, final=False)
        if other.st is St.SETTLED and (other.outcome is Settled.SUCCESS or not other.sure):
            return Hurdle(reason, detail or other.node_id)
    return None


def _allow(of: Key, call: Invocation, rule: Rule, pending: Pending, *, terms: Terms, now: Now) -> Step:
    """Approval where the rule wants it, the policy's word where the fold wants it, else the grant."""
    version = call.entry.tool_version
    again_s = now.mono_s + terms.limits.lease_ttl_s
    approved = of.state.decision is not None
    if of.state.decision is not None and of.state.decision.tool_version != version:
        mismatch = settlement.rejected(of, RejectReason.APPROVAL_MISMATCH, "another version was approved")
        return Step((mismatch,), again_s)
    if rule.effect is PolicyEffect.APPROVAL and not approved:
        return Step() if of.state.requested is not None else Step((_ask_human(of, call, rule, now),), again_s)
    if call.entry.irreversible and not approved and version not in of.state.allowed_versions:
        return Step((_policy_allows(of, call, rule),), again_s)
    pending.grants += 1
    granted = _grant(_cut(of.job, pending.nodes, terms), of, terms, pending.parent)
    return Step((granted,), now.mono_s + _rarer(terms, pending.grants))


def _cut(job: JobState, nodes: tuple[str, ...], terms: Terms) -> tuple[str, ...]:
    """The run up to the first later node that must be judged by itself."""
    if not terms.limits.runs:
        return nodes[:1]
    for place, node_id in enumerate(nodes[1:LONGEST_RUN], start=1):
        if not _may_follow(job, node_id, terms):
            return nodes[:place]
    return nodes[:LONGEST_RUN]


def _may_follow(job: JobState, node_id: str, terms: Terms) -> bool:
    entry = job.entry(node_id)
    if entry is None or entry.irreversible or entry.node.kind not in RUNNABLE or job.node_keys.get(node_id):
        return False
    rule = terms.policy.rule_for(entry.node.tool_name, irreversible=False)
    return rule.effect is PolicyEffect.ALLOW and not rule.looks_at_arguments


def _grant(nodes: tuple[str, ...], of: Key, terms: Terms, parent: bytes | None) -> Grant:
    """Token and birth from the fold; what the grant rests on is folded, so as_of lies behind it.

    A grant that is given again has the same lease: whoever took up the first one keeps it alive.
    """
    job = of.job
    message = ToolGrant(
        job_id=job.job_id,
        birth=job.birth,
        as_of=job.last_offset,
        revision=job.revision,
        plan_hash=job.plan_hash,
        nodes=nodes,
        idempotency_key=of.key,
        token=of.state.t,
        lease_id=derived("lease", job.job_id, of.key, str(of.state.t)),
        deadline_s=terms.limits.lease_ttl_s,
    )
    return Grant(message, terms.limits.lease_ttl_s, parent)


def _rarer(terms: Terms, grants: int) -> float:
    return terms.limits.lease_ttl_s * min(RARER_AT_MOST, 2 ** (grants - 1))


def _schedule(of: Key, free: Reopened, terms: Terms, now: Now) -> Step:
    """After a recorded proof that the try took no effect: a later try, or the end."""
    entry = _entry(of)
    retry = entry.node.retry or Retry()
    if of.state.attempts >= retry.max_attempts:
        return Step(
            (settlement.failed(of, of.state.reason or "no try is left"),), now.mono_s + terms.limits.lease_ttl_s
        )
    if free.scheduled:
        return Step()
    free.scheduled = True
    pause_s = min(retry.max_backoff_s, retry.backoff_s * retry.backoff_factor ** (of.state.attempts - 1))
    due = now.wall + timedelta(seconds=pause_s * (0.5 + terms.jitter() / 2))
    return Step((settlement.retry_scheduled(of, due.isoformat()),))


def _policy_allows(of: Key, call: Invocation, rule: Rule) -> Emit:
    """In the log before the grant: an irreversible call starts only behind it."""
    version = call.entry.tool_version
    event = ev.PolicyAllowed(
        job_id=of.job.job_id,
        node_id=call.node_id,
        idempotency_key=of.key,
        args_hash=call.args_hash,
        tool_version=version,
        rule=rule.name,
    )
    return settlement.emit(of, written(event, of.key, version, rule.name))


def _ask_human(of: Key, call: Invocation, rule: Rule, now: Now) -> Emit:
    """approval_requested and job_waiting: from here on the log waits, not the request."""
    request_id = execution_id(of.job.job_id, call.node_id, of.key)
    requested = ev.ApprovalRequested(
        job_id=of.job.job_id,
        node_id=call.node_id,
        idempotency_key=of.key,
        args_hash=call.args_hash,
        tool_version=call.entry.tool_version,
        rule=rule.name,
        form=_form(request_id, call, now),
    )
    waiting = ev.JobWaiting(
        job_id=of.job.job_id, wait_type="approval", node_id=call.node_id, correlation_key=request_id
    )
    return settlement.emit(of, written(requested, of.key), written(waiting, of.key))


def _form(request_id: str, call: Invocation, now: Now) -> dict[str, Any]:
    tool = call.entry.node.tool_name
    return {
        "id": request_id,
        "type": "confirmation",
        "title": f"Run {tool}?",
        "description": f"Step {call.node_id} calls {tool}"
        + (", which can't be undone." if call.entry.irreversible else "."),
        "fields": [],
        "actions": {
            "approve": {"label": "Approve", "style": "primary"},
            "reject": {"label": "Reject", "style": "danger"},
        },
        "context": {"tool": tool, "tool_version": call.entry.tool_version, "arguments": call.args},
        "created_at": now.wall.isoformat(),
    }
