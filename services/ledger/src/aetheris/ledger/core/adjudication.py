"""Whether a call may run next, in the order of docs/architecture.md: settled, refused, asked for, granted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from aetheris.ledger.core import settlement, waits
from aetheris.ledger.core.approvals import ask_human
from aetheris.ledger.core.body_starts import is_woken, may_run_first
from aetheris.ledger.core.budgets import wait_s
from aetheris.ledger.core.confirmations import hold
from aetheris.ledger.core.decisions import DuplicateLine, Emit, Facts, Grant, Now
from aetheris.ledger.core.doubt import caught_up
from aetheris.ledger.core.duplicate_index import claim, duplicate, scope_key
from aetheris.ledger.core.live_jobs import DecisionContext, LiveJob, Pending, Reopened, TimedDecision, Waiting
from aetheris.ledger.core.settlement import JobKey, written
from aetheris.protocol.base.canonical import InvalidArgs
from aetheris.protocol.base.ids import derived, execution_id
from aetheris.protocol.base.references import UnresolvedReference
from aetheris.protocol.fold.bodies import has_open_calls
from aetheris.protocol.fold.start import is_stopped, tools_held
from aetheris.protocol.fold.state import IN_FLIGHT, JobState, KeyState, KeyStatus, PlanEntry, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import ToolGrant
from aetheris.protocol.messages.event_values import Decision, DuplicateOf, RejectReason
from aetheris.protocol.plan.graph import AWAITED, RUNNABLE, Kind, Retry
from aetheris.protocol.planning.approvals import recorded
from aetheris.protocol.planning.continuation import done_before
from aetheris.protocol.planning.invocation import Invocation, NotReady, blobs_needed, invocation
from aetheris.protocol.planning.policy import PolicyEffect, PolicyVerdict, Rule
from aetheris.protocol.planning.policy_facts import policy_facts
from aetheris.protocol.tables.freeze_orders import is_frozen

LONGEST_RUN = 200
"""Nodes of a grant."""

_WITHOUT_TOOL = tuple(sorted(kind.value for kind in RUNNABLE - {Kind.TOOL}))

RARER_AT_MOST = 8
"""Lease TTLs between two grants that nobody takes up; a grant waits in the log, so this is for lost ones only."""


@dataclass(frozen=True, slots=True)
class Hurdle:
    """Why a key can't start now; `final`: nor ever."""

    reason: RejectReason
    detail: str
    final: bool = True
    duplicate_of: DuplicateOf | None = None


def adjudicate(
    job: LiveJob, node_id: str, pending: Pending, *, context: DecisionContext, facts: Facts, now: Now
) -> TimedDecision:
    """What becomes of a requested node; a Step without a due time discharges the request."""
    entry = job.state.entry(node_id)
    if entry is None or is_closed(job.state, entry) or _is_known(job.state, node_id):
        return TimedDecision()
    if job.state.paused is not None or is_frozen(job.state, tools_held(job.state, entry), context.freezes):
        return TimedDecision((), float("inf"))  # its end hurries it
    if not context.may_judge(job):
        return TimedDecision((), float("inf"))  # the next activation hurries it
    if not may_run_first(job.state, entry):
        return TimedDecision((), float("inf"))  # a later body that asks for it plans it anew
    again_s = now.mono_s + context.limits.lease_ttl_s
    try:
        if any(ref.sha256 not in facts.blobs for ref in blobs_needed(job.state, entry)):
            return TimedDecision((), again_s)
        call = invocation(job.state, entry, facts.blobs)
    except (NotReady, UnresolvedReference, InvalidArgs):
        return TimedDecision()  # the planner asks when it is ready; what can't be resolved it ends by itself
    job_key = JobKey(job.state, call.key, job.state.keys.get(call.key) or KeyState(node_id))
    if job_key.state.status is not KeyStatus.NONE or job_key.state.is_waiting:
        return _leave(job_key, again_s)
    if entry.node.kind in AWAITED:
        return TimedDecision((waits.begun(job_key, call, now),), again_s)
    verdict = context.rules.verdict(entry.node.tool_name, entry.irreversible, lambda: policy_facts(job.state, call))
    if verdict.effect is PolicyEffect.DENY:
        refused = settlement.rejected(
            job_key, RejectReason.POLICY, verdict.detail, observed=verdict.observed, by_policy=context.named
        )
        return TimedDecision((refused,), again_s)
    hurdle = _hurdle(job_key, entry, call.content_key) or _done_elsewhere(
        job_key, entry, call.content_key, context, now
    )
    if hurdle is not None:
        refused = settlement.rejected(job_key, hurdle.reason, hurdle.detail, hurdle.duplicate_of)
        return TimedDecision((refused,) if hurdle.final else (), again_s)
    mismatch = _approved_otherwise(job_key, call)
    if mismatch is not None:
        return TimedDecision((settlement.rejected(job_key, RejectReason.APPROVAL_MISMATCH, mismatch),), again_s)
    pending.scope = scope_key(job.state, entry, call.content_key, entry.node.occurrence)
    line = claim(job.state, node_id, call.key, pending.scope, context.duplicates) if pending.scope is not None else None
    if line is not None:
        return TimedDecision((DuplicateLine(line),), again_s)
    held = hold(job, job_key, pending.nodes, context, now)
    return held or _within(job, job_key, call, verdict, pending, context=context, now=now)


def _leave(job_key: JobKey, again_s: float) -> TimedDecision:
    """Nothing to let run; where the call was refused, another that was approved for an earlier plan is not made."""
    if job_key.state.outcome is not Settled.REJECTED:
        return TimedDecision()
    last = job_key.job.node_keys[job_key.state.node_id][-1]
    left = JobKey(job_key.job, last, job_key.job.keys[last])
    if left.state.status is not KeyStatus.NONE or left.state.decision is None:
        return TimedDecision()
    return TimedDecision((settlement.rejected(left, RejectReason.CANCELLED, "the plan has changed"),), again_s)


def again(
    job: LiveJob, job_key: JobKey, free: Reopened, *, context: DecisionContext, facts: Facts, now: Now
) -> TimedDecision:
    """The next try of a reopened key; a Step without a due time waits for the fold."""
    again_s = now.mono_s + context.limits.lease_ttl_s
    effect = caught_up(job_key, facts) if _entry(job_key).node.kind is not Kind.WORKFLOW else None  # it ends no body
    if effect is not None:
        return TimedDecision((effect,), again_s)
    hurdle = stopped(job_key) or _hurdle(job_key, _entry(job_key), job_key.started.content_key)
    if (job_key.state.cancel_requested or hurdle is not None) and has_open_calls(job.state, job_key.state.node_id):
        return TimedDecision((), float("inf"))  # the last of them to settle hurries it
    if job_key.state.cancel_requested:
        return TimedDecision((settlement.failed(job_key, settlement.CANCELLED),), again_s)
    if hurdle is not None:
        return TimedDecision((settlement.failed(job_key, hurdle.detail),) if hurdle.final else (), again_s)
    if free.until is not None and not is_woken(job.state, free.until):
        return TimedDecision((), float("inf"))  # what it sleeps for hurries it
    paced = free.after_proof or free.paced if free.until is None else _gets_nowhere(job, job_key, context)
    if paced and job_key.state.retry_due is None:
        return _schedule(job_key, free, context, now)
    if not context.may_judge(job):
        return TimedDecision((), float("inf"))  # the next activation hurries it
    if job_key.state.needs_yes and job_key.state.decision is None:
        return _ask_anew(job_key, context=context, facts=facts, now=now)
    if job_key.job.paused is not None or _is_frozen(job_key, context):
        return TimedDecision((), float("inf"))  # its end hurries it
    refused = None if job_key.state.unresolved else _refused_now(job_key, context, facts, again_s)
    if refused is not None:
        return refused
    held = hold(job, job_key, (job_key.state.node_id,), context, now)
    if held is not None:
        return held
    free.grants += 1
    rule = (
        job_key.state.requested.rule
        if job_key.state.needs_yes and job_key.state.requested is not None
        else job_key.started.rule
    )
    rules = (rule,) if rule is not None else ()
    granted = _grant((job_key.state.node_id,), rules, job_key, context, None)
    return TimedDecision((granted,), now.mono_s + _rarer(context, free.grants))


def _gets_nowhere(job: LiveJob, job_key: JobKey, context: DecisionContext) -> bool:
    """Whether a body has stopped again and again, and none of its calls has ended meanwhile."""
    return job.takeovers.get(job_key.state.node_id, 0) >= context.limits.max_tries


def _refused_now(job_key: JobKey, context: DecisionContext, facts: Facts, again_s: float) -> TimedDecision | None:
    """What certainly took no effect starts only where the policy in force lets it; what may have acted is settled."""
    entry = _entry(job_key)
    if any(ref.sha256 not in facts.blobs for ref in blobs_needed(job_key.job, entry)):
        return TimedDecision((), again_s)
    verdict = context.rules.verdict(
        entry.node.tool_name,
        entry.irreversible,
        lambda: policy_facts(job_key.job, invocation(job_key.job, entry, facts.blobs)),
    )
    if verdict.effect is PolicyEffect.ALLOW or (
        verdict.effect is PolicyEffect.APPROVAL and job_key.state.decision is not None
    ):
        return None
    asks = " asks for an approval" if verdict.effect is PolicyEffect.APPROVAL else ""
    return TimedDecision((settlement.failed(job_key, f"{RejectReason.POLICY.value}: {verdict.detail}{asks}"),), again_s)


def _ask_anew(job_key: JobKey, *, context: DecisionContext, facts: Facts, now: Now) -> TimedDecision:
    """A human wants another try of what may have acted: who decides about such calls decides about this one."""
    again_s = now.mono_s + context.limits.lease_ttl_s
    entry = _entry(job_key)
    if job_key.state.requested is not None:
        return TimedDecision()
    if any(ref.sha256 not in facts.blobs for ref in blobs_needed(job_key.job, entry)):
        return TimedDecision((), again_s)
    call = invocation(job_key.job, entry, facts.blobs)
    verdict = context.rules.verdict(entry.node.tool_name, entry.irreversible, lambda: policy_facts(job_key.job, call))
    if verdict.effect is PolicyEffect.DENY:
        return TimedDecision((settlement.failed(job_key, f"{RejectReason.POLICY.value}: {verdict.detail}"),), again_s)
    return TimedDecision((ask_human(job_key, call, verdict.rule, None, context=context, now=now),), again_s)


def wait_goes_on(job_key: JobKey, waiting: Waiting, context: DecisionContext, now: Now) -> TimedDecision:
    """An open wait: whether it ends now, and else when by the clock."""
    again_s = now.mono_s + context.limits.lease_ttl_s
    if job_key.job.terminal is not None:
        return TimedDecision()
    if is_closed(job_key.job, job_key.job.entry(job_key.state.node_id)):
        return TimedDecision((settlement.rejected(job_key, RejectReason.CANCELLED, "the job is stopping"),), again_s)
    event = waiting.event
    signal = job_key.job.signals.get(event.correlation_key or "") if event.wait_type == "signal" else None
    if signal is not None:
        return TimedDecision(
            (settlement.emit(job_key, waits.ended(job_key, event, signal.payload, signal.command_id)),), again_s
        )
    if waiting.due_s <= now.mono_s:
        return TimedDecision((waits.overdue(job_key, event),), again_s)
    return TimedDecision((), waiting.due_s)


def is_closed(job: JobState, entry: PlanEntry | None) -> bool:
    """Whether the job's end, or a stop, keeps an entry in force from starting any more."""
    return job.terminal is not None or entry is None or is_stopped(job, entry)


def stopped(job_key: JobKey) -> Hurdle | None:
    """What the job's history has decided about a key that started before."""
    named, current = (
        job_key.job.entry(job_key.state.node_id, job_key.started.revision),
        job_key.job.entry(job_key.state.node_id),
    )
    if is_closed(job_key.job, current):
        return Hurdle(RejectReason.CANCELLED, "the job is stopping")
    if named is None or current is None or not named.same_as(current):
        return Hurdle(RejectReason.CANCELLED, "the plan has changed")
    return None


def _is_known(job: JobState, node_id: str) -> bool:
    """Settled in the log, or running elsewhere: nothing to do, its end arrives as an event."""
    if job.settled_key(node_id) is not None:
        return True
    return any(job.keys[key].status in IN_FLIGHT for key in job.node_keys.get(node_id, ()))


def _entry(job_key: JobKey) -> PlanEntry:
    entry = job_key.job.entry(job_key.state.node_id)
    if entry is None:
        raise LookupError("a started key's node is in the plan")
    return entry


def _hurdle(job_key: JobKey, entry: PlanEntry, content_key: str) -> Hurdle | None:
    """A human's no, another key of the node, the same irreversible call: what the fold would call void."""
    decision = job_key.state.decision
    if decision is not None and decision.decision is not Decision.APPROVE:
        reason = RejectReason.EDITED if decision.decision is Decision.EDIT else RejectReason.APPROVAL
        return Hurdle(reason, "a human said no" if reason is RejectReason.APPROVAL else "a human edited the call")
    others = (key for key in job_key.job.node_keys.get(job_key.state.node_id, ()) if key != job_key.key)
    taken = _blocked_by(job_key.job, others)
    if taken is not None:
        final = job_key.job.keys[taken].status is KeyStatus.SETTLED
        return Hurdle(RejectReason.CANCELLED, "another call of the node stands", final)
    return _duplicate(job_key, entry, content_key) if entry.irreversible else None


def _duplicate(job_key: JobKey, entry: PlanEntry, content_key: str) -> Hurdle | None:
    """The irreversible call that means the same, done or under way; its occurrence tells another apart.

    Of the job, or of one that it continues: what it adopted is done.
    """
    adopted = done_before(job_key.job, entry, content_key)
    if adopted is not None:
        return Hurdle(RejectReason.DUPLICATE_OF, f"{adopted.job_id}/{adopted.node_id}", duplicate_of=adopted)
    same = (
        key for key in job_key.job.keys_by_content.get((content_key, entry.node.occurrence), ()) if key != job_key.key
    )
    found = _blocked_by(job_key.job, same)
    if found is None:
        return None
    other = job_key.job.keys[found]
    execution = execution_id(job_key.job.job_id, other.node_id, found)
    named = DuplicateOf(job_id=job_key.job.job_id, node_id=other.node_id, execution_id=execution)
    return Hurdle(RejectReason.DUPLICATE_OF, other.node_id, other.status is KeyStatus.SETTLED, named)


def _done_elsewhere(
    job_key: JobKey, entry: PlanEntry, content_key: str, context: DecisionContext, now: Now
) -> Hurdle | None:
    named = duplicate(job_key.job, entry, content_key, context.duplicates, now)
    if named is None:
        return None
    return Hurdle(RejectReason.DUPLICATE_OF, f"{named.job_id}/{named.node_id}", duplicate_of=named)


def _blocked_by(job: JobState, keys: Iterable[str]) -> str | None:
    """The first key that stands, or may have taken effect."""
    for key in keys:
        other = job.keys[key]
        if other.status in IN_FLIGHT or other.outcome is Settled.SUCCESS or not other.sure:
            return key
    return None


def _approved_otherwise(job_key: JobKey, call: Invocation) -> str | None:
    """A human's yes to something else than this very call."""
    event = job_key.state.decision
    if event is not None and event.tool_version != call.entry.tool_version:
        return "another version was approved"
    if event is not None and event.args_hash != call.args_hash:
        return "other arguments were approved"
    others = (job_key.job.keys[key] for key in job_key.job.node_keys.get(job_key.state.node_id, ()))
    if event is None and any(
        other.status is KeyStatus.NONE and other.decision is not None and other.decision.decision is Decision.APPROVE
        for other in others
    ):
        return "other arguments were approved"
    return None


def _within(
    job: LiveJob,
    job_key: JobKey,
    call: Invocation,
    verdict: PolicyVerdict,
    pending: Pending,
    *,
    context: DecisionContext,
    now: Now,
) -> TimedDecision:
    """Budget and rate of the rule, before its word is written."""
    rule = verdict.rule
    if not rule.is_limited or job_key.state.requested is not None:
        charge = job.account(rule.name).taken.get(job_key.key) if rule.is_limited else None
        cost = None
    else:
        account = job.account(rule.name)
        charge = account.taken.get(job_key.key)
        cost = rule.budget.cost(call.args) if rule.budget is not None else 1.0
        if charge is None:
            if (pause_s := wait_s(account, rule, now)) > 0:
                return TimedDecision((), now.mono_s + pause_s)
            if cost is None or not account.allows(rule, job_key.key, cost):
                return _over(job_key, rule, cost, context, now)
            account.ask(job_key.key, cost, now.wall.timestamp())
    if charge is not None and not charge.is_within:
        return _over(job_key, rule, charge.cost, context, now)
    return _allow(job_key, call, verdict, pending, cost, context=context, now=now)


def _over(job_key: JobKey, rule: Rule, cost: float | None, context: DecisionContext, now: Now) -> TimedDecision:
    detail = rule.name if cost is not None else f"{rule.name}: no such amount in the arguments"
    rejected = settlement.rejected(job_key, RejectReason.BUDGET, detail, by_policy=context.named)
    return TimedDecision((rejected,), now.mono_s + context.limits.lease_ttl_s)


def _allow(
    job_key: JobKey,
    call: Invocation,
    verdict: PolicyVerdict,
    pending: Pending,
    cost: float | None,
    *,
    context: DecisionContext,
    now: Now,
) -> TimedDecision:
    """Approval where the rule wants it, the policy's word where the call was looked at, else the grant."""
    rule, version = verdict.rule, call.entry.tool_version
    again_s = now.mono_s + context.limits.lease_ttl_s
    approved = job_key.state.decision is not None
    if job_key.state.is_asking:
        return TimedDecision()  # whatever the policy says by now: nothing starts behind an open question
    if (rule.effect is PolicyEffect.APPROVAL or _is_repeat(call.entry, rule)) and not approved:
        asking = ask_human(job_key, call, rule, cost, context=context, now=now, observed=verdict.observed)
        return TimedDecision((asking,), again_s)
    needs_word = call.entry.irreversible or context.rules.plain(call.entry.node.tool_name) is None
    if needs_word and not approved and job_key.state.allowed_as(version) is None:
        return TimedDecision((_policy_allows(job_key, call, verdict, cost, context),), again_s)
    elsewhere = _wait_for_another(job_key, call.node_id, pending, context)
    if elsewhere is not None:
        return TimedDecision(elsewhere, again_s)
    pending.grants += 1
    rules = _run(job_key.job, pending.nodes, rule, context)
    granted = _grant(pending.nodes[: len(rules)], rules, job_key, context, pending.parent)
    return TimedDecision((granted,), now.mono_s + _rarer(context, pending.grants))


def _is_repeat(entry: PlanEntry, rule: Rule) -> bool:
    """Whether code makes an irreversible call again, and nobody has said in advance that it may."""
    return entry.call is not None and entry.irreversible and entry.node.occurrence > 1 and rule.repeats is None


def _wait_for_another(
    job_key: JobKey, node_id: str, pending: Pending, context: DecisionContext
) -> Sequence[Emit] | None:
    """What is written while an equal call of another job is under way, and when it is no more; None: go on."""
    waiting = job_key.job.open_waits.get((waits.ANOTHER, node_id))
    execution = execution_id(job_key.job.job_id, node_id, job_key.key)
    ahead = (
        context.duplicates.ahead(job_key.job.job_id, execution, pending.scope) if pending.scope is not None else None
    )
    named = f"{ahead.job_id}/{ahead.node_id}" if ahead is not None else None
    if waiting is not None and waiting.correlation_key != named:
        return (settlement.emit(job_key, waits.another_ended(job_key, node_id, waiting)),)
    if named is None:
        return None
    return () if waiting is not None else (settlement.emit(job_key, waits.for_another(job_key, node_id, named)),)


def _run(job: JobState, nodes: tuple[str, ...], rule: Rule, context: DecisionContext) -> tuple[str, ...]:
    """The rule of each node, up to the first later one that must be judged by itself."""
    rules = [rule.name]
    for node_id in nodes[1:LONGEST_RUN] if context.limits.runs else ():
        plain = _rule_to_follow(job, node_id, context)
        if plain is None:
            break
        rules.append(plain)
    return tuple(rules)


def _is_frozen(job_key: JobKey, context: DecisionContext) -> bool:
    return is_frozen(job_key.job, tools_held(job_key.job, _entry(job_key)), context.freezes)


def _rule_to_follow(job: JobState, node_id: str, context: DecisionContext) -> str | None:
    entry = job.entry(node_id)
    if entry is None or entry.irreversible or entry.node.kind not in RUNNABLE or job.node_keys.get(node_id):
        return None
    if is_frozen(job, tools_held(job, entry), context.freezes):
        return None
    return context.rules.plain(entry.node.tool_name)


def _grant(
    nodes: tuple[str, ...], rules: tuple[str, ...], job_key: JobKey, context: DecisionContext, parent: bytes | None
) -> Grant:
    """Token and birth from the fold; what the grant rests on is folded, so as_of lies behind it.

    A grant that is given again has the same lease: whoever took up the first one keeps it alive.
    """
    job, first = job_key.job, job_key.job.entry(nodes[0])
    message = ToolGrant(
        job_id=job.job_id,
        birth=job.creation_offset,
        as_of=job.last_offset,
        revision=job.revision,
        plan_hash=job.plan_hash,
        nodes=nodes,
        rules=rules,
        activation=context.policies.number,
        idempotency_key=job_key.key,
        token=job_key.state.fencing_token,
        lease_id=derived("lease", job.job_id, job_key.key, str(job_key.state.fencing_token)),
        deadline_s=context.limits.lease_ttl_s,
        licence=_licence(job, context) if first is not None and first.node.kind is Kind.WORKFLOW else None,
    )
    return Grant(message, context.limits.lease_ttl_s, parent)


def _licence(job: JobState, context: DecisionContext) -> dict[str, str]:
    """What a body may start without asking: what can be undone, and is allowed whatever its arguments are."""
    pins = job.bodies.pins if job.bodies is not None else {}
    undoable = (tool for tool, pin in pins.items() if not pin.irreversible)
    plain = {tool: context.rules.plain(tool) for tool in (*undoable, *_WITHOUT_TOOL)}
    return {tool: rule for tool, rule in plain.items() if rule is not None}


def _rarer(context: DecisionContext, grants: int) -> float:
    return context.limits.lease_ttl_s * min(RARER_AT_MOST, 2 ** (grants - 1))


def pause_s(retry: Retry, attempts: int) -> float:
    """The longest time until the next try, after so many."""
    return min(retry.max_backoff_s, retry.backoff_s * retry.backoff_factor ** max(0, attempts - 1))


def _schedule(job_key: JobKey, free: Reopened, context: DecisionContext, now: Now) -> TimedDecision:
    """A later try; or the end, where it is recorded that the tries took no effect. What is in doubt has its own cap."""
    entry = _entry(job_key)
    retry = entry.node.retry or Retry()
    if free.after_proof and free.until is None and job_key.state.attempt_count >= retry.max_attempts:
        return TimedDecision(
            (settlement.failed(job_key, job_key.state.reason or "no try is left"),),
            now.mono_s + context.limits.lease_ttl_s,
        )
    if free.scheduled:
        return TimedDecision()
    free.scheduled = True
    due = now.wall + timedelta(seconds=pause_s(retry, job_key.state.attempt_count) * (0.5 + context.jitter() / 2))
    return TimedDecision((settlement.retry_scheduled(job_key, due.isoformat()),))


def _policy_allows(
    job_key: JobKey, call: Invocation, verdict: PolicyVerdict, cost: float | None, context: DecisionContext
) -> Emit:
    """Before the grant: what can't be undone starts only behind it, budgets count it, and it says who decides."""
    version, deciders = call.entry.tool_version, verdict.rule.deciders(irreversible=call.entry.irreversible)
    event = ev.PolicyAllowed(
        job_id=job_key.job.job_id,
        node_id=call.node_id,
        idempotency_key=job_key.key,
        args_hash=call.args_hash,
        tool_version=version,
        **recorded(deciders),
        observed=verdict.observed or None,
        cost=cost,
        repeats=verdict.rule.repeats if call.entry.call is not None else None,
        **context.named,
    )
    return settlement.emit(job_key, written(event, job_key.key, version, verdict.rule.name))
