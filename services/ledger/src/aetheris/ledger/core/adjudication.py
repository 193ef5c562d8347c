"""Whether a call may run next, in the order of docs/architecture.md: settled, refused, asked for, granted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from aetheris.ledger.core import settlement, waits
from aetheris.ledger.core.approvals import ask_human, policy_facts
from aetheris.ledger.core.charges import wait_s
from aetheris.ledger.core.confirming import hold
from aetheris.ledger.core.contents import claim, duplicate, scope_key
from aetheris.ledger.core.decisions import Emit, Facts, Grant, Line, Now
from aetheris.ledger.core.doubt import caught_up
from aetheris.ledger.core.memory import LiveJob, Pending, Reopened, Step, Terms, Waiting
from aetheris.ledger.core.policy import PolicyEffect, Rule
from aetheris.ledger.core.settlement import Key, written
from aetheris.protocol.base.canonical import InvalidArgs
from aetheris.protocol.base.ids import derived, execution_id
from aetheris.protocol.base.references import UnresolvedReference
from aetheris.protocol.fold.start import is_stopped
from aetheris.protocol.fold.state import IN_FLIGHT, Entry, JobState, KeyState, Settled, St
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import ToolGrant
from aetheris.protocol.messages.events import Decision, RejectReason
from aetheris.protocol.plan.graph import AWAITED, RUNNABLE, Retry
from aetheris.protocol.planning.continuation import done_before
from aetheris.protocol.planning.invocation import Invocation, NotReady, blobs_needed, invocation

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
    duplicate_of: ev.DuplicateOf | None = None


def adjudicate(job: LiveJob, node_id: str, pending: Pending, *, terms: Terms, facts: Facts, now: Now) -> Step:
    """What becomes of a requested node; a Step without a due time discharges the request."""
    entry = job.state.entry(node_id)
    if entry is None or is_closed(job.state, entry) or _is_known(job.state, node_id):
        return Step()
    if job.state.paused is not None:
        return Step((), float("inf"))  # its resumption hurries it
    again_s = now.mono_s + terms.limits.lease_ttl_s
    try:
        if any(ref.sha256 not in facts.blobs for ref in blobs_needed(job.state, entry)):
            return Step((), again_s)
        call = invocation(job.state, entry, facts.blobs)
    except (NotReady, UnresolvedReference, InvalidArgs):
        return Step()  # the planner asks when it is ready; what can't be resolved it ends by itself
    of = Key(job.state, call.key, job.state.keys.get(call.key) or KeyState(node_id))
    if of.state.st is not St.NONE or of.state.is_waiting:
        return _leave(of, again_s)
    if entry.node.kind in AWAITED:
        return Step((waits.begun(of, call, now),), again_s)
    verdict = terms.policy.verdict(entry.node.tool_name, entry.irreversible, lambda: policy_facts(job.state, call))
    if verdict.effect is PolicyEffect.DENY:
        return Step((settlement.rejected(of, RejectReason.POLICY, verdict.detail),), again_s)
    hurdle = _hurdle(of, entry, call.content_key) or _done_elsewhere(of, entry, call.content_key, terms, now)
    if hurdle is not None:
        refused = settlement.rejected(of, hurdle.reason, hurdle.detail, hurdle.duplicate_of)
        return Step((refused,) if hurdle.final else (), again_s)
    mismatch = _approved_otherwise(of, call)
    if mismatch is not None:
        return Step((settlement.rejected(of, RejectReason.APPROVAL_MISMATCH, mismatch),), again_s)
    pending.scope = scope_key(job.state, entry, call.content_key, entry.node.occurrence)
    line = claim(job.state, node_id, call.key, pending.scope, terms.contents) if pending.scope is not None else None
    if line is not None:
        return Step((Line(line),), again_s)
    held = hold(job, of, pending.nodes, terms, now)
    return held or _within(job, of, call, verdict.rule, pending, terms=terms, now=now)


def _leave(of: Key, again_s: float) -> Step:
    """Nothing to let run; where the call was refused, another that was approved for an earlier plan is not made."""
    if of.state.outcome is not Settled.REJECTED:
        return Step()
    last = of.job.node_keys[of.state.node_id][-1]
    left = Key(of.job, last, of.job.keys[last])
    if left.state.st is not St.NONE or left.state.decision is None:
        return Step()
    return Step((settlement.rejected(left, RejectReason.CANCELLED, "the plan has changed"),), again_s)


def again(job: LiveJob, of: Key, free: Reopened, *, terms: Terms, facts: Facts, now: Now) -> Step:
    """The next try of a reopened key; a Step without a due time waits for the fold."""
    again_s = now.mono_s + terms.limits.lease_ttl_s
    effect = caught_up(of, facts)
    if effect is not None:
        return Step((effect,), again_s)
    if of.state.cancel_requested:
        return Step((settlement.failed(of, settlement.CANCELLED),), again_s)
    hurdle = stopped(of) or _hurdle(of, _entry(of), of.started.content_key)
    if hurdle is not None:
        return Step((settlement.failed(of, hurdle.detail),) if hurdle.final else (), again_s)
    if (free.after_proof or free.paced) and of.state.retry_due is None:
        return _schedule(of, free, terms, now)
    if of.state.needs_yes and of.state.decision is None:
        return _ask_anew(of, terms=terms, facts=facts, now=now)
    if of.job.paused is not None:
        return Step((), float("inf"))  # its resumption hurries it
    held = hold(job, of, (of.state.node_id,), terms, now)
    if held is not None:
        return held
    free.grants += 1
    rule = of.state.requested.rule if of.state.needs_yes and of.state.requested is not None else of.started.rule
    rules = (rule,) if rule is not None else ()
    granted = _grant((of.state.node_id,), rules, of, terms, None)
    return Step((granted,), now.mono_s + _rarer(terms, free.grants))


def _ask_anew(of: Key, *, terms: Terms, facts: Facts, now: Now) -> Step:
    """A human wants another try of what may have acted: who decides about such calls decides about this one."""
    again_s = now.mono_s + terms.limits.lease_ttl_s
    entry = _entry(of)
    if of.state.requested is not None:
        return Step()
    if any(ref.sha256 not in facts.blobs for ref in blobs_needed(of.job, entry)):
        return Step((), again_s)
    call = invocation(of.job, entry, facts.blobs)
    verdict = terms.policy.verdict(entry.node.tool_name, entry.irreversible, lambda: policy_facts(of.job, call))
    if verdict.effect is PolicyEffect.DENY:
        return Step((settlement.failed(of, f"{RejectReason.POLICY.value}: {verdict.detail}"),), again_s)
    return Step((ask_human(of, call, verdict.rule, None, terms=terms, now=now),), again_s)


def wait_goes_on(of: Key, waiting: Waiting, terms: Terms, now: Now) -> Step:
    """An open wait: whether it ends now, and else when by the clock."""
    again_s = now.mono_s + terms.limits.lease_ttl_s
    if of.job.terminal is not None:
        return Step()
    if is_closed(of.job, of.job.entry(of.state.node_id)):
        return Step((settlement.rejected(of, RejectReason.CANCELLED, "the job is stopping"),), again_s)
    event = waiting.event
    signal = of.job.signals.get(event.correlation_key or "") if event.wait_type == "signal" else None
    if signal is not None:
        return Step((settlement.emit(of, waits.ended(of, event, signal.payload, signal.command_id)),), again_s)
    if waiting.due_s <= now.mono_s:
        return Step((waits.overdue(of, event),), again_s)
    return Step((), waiting.due_s)


def is_closed(job: JobState, entry: Entry | None) -> bool:
    """Whether the job's end, or a stop, keeps an entry in force from starting any more."""
    return job.terminal is not None or entry is None or is_stopped(job, entry)


def stopped(of: Key) -> Hurdle | None:
    """What the job's course has decided about a key that started before."""
    named, current = of.job.entry(of.state.node_id, of.started.revision), of.job.entry(of.state.node_id)
    if is_closed(of.job, current):
        return Hurdle(RejectReason.CANCELLED, "the job is stopping")
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
    taken = _blocked_by(of.job, others)
    if taken is not None:
        final = of.job.keys[taken].st is St.SETTLED
        return Hurdle(RejectReason.CANCELLED, "another call of the node stands", final)
    return _duplicate(of, entry, content_key) if entry.irreversible else None


def _duplicate(of: Key, entry: Entry, content_key: str) -> Hurdle | None:
    """The irreversible call that means the same, done or under way; its occurrence tells another apart.

    Of the job, or of one that it continues: what it adopted is done.
    """
    adopted = done_before(of.job, entry, content_key)
    if adopted is not None:
        return Hurdle(RejectReason.DUPLICATE_OF, f"{adopted.job_id}/{adopted.node_id}", duplicate_of=adopted)
    same = (key for key in of.job.contents.get((content_key, entry.node.occurrence), ()) if key != of.key)
    found = _blocked_by(of.job, same)
    if found is None:
        return None
    other = of.job.keys[found]
    execution = execution_id(of.job.job_id, other.node_id, found)
    named = ev.DuplicateOf(job_id=of.job.job_id, node_id=other.node_id, execution_id=execution)
    return Hurdle(RejectReason.DUPLICATE_OF, other.node_id, other.st is St.SETTLED, named)


def _done_elsewhere(of: Key, entry: Entry, content_key: str, terms: Terms, now: Now) -> Hurdle | None:
    named = duplicate(of.job, entry, content_key, terms.contents, now)
    if named is None:
        return None
    return Hurdle(RejectReason.DUPLICATE_OF, f"{named.job_id}/{named.node_id}", duplicate_of=named)


def _blocked_by(job: JobState, keys: Iterable[str]) -> str | None:
    """The first key that stands, or may have taken effect."""
    for key in keys:
        other = job.keys[key]
        if other.st in IN_FLIGHT or other.outcome is Settled.SUCCESS or not other.sure:
            return key
    return None


def _approved_otherwise(of: Key, call: Invocation) -> str | None:
    """A human's yes to something else than this very call."""
    said = of.state.decision
    if said is not None and said.tool_version != call.entry.tool_version:
        return "another version was approved"
    if said is not None and said.args_hash != call.args_hash:
        return "other arguments were approved"
    others = (of.job.keys[key] for key in of.job.node_keys.get(of.state.node_id, ()))
    if said is None and any(
        other.st is St.NONE and other.decision is not None and other.decision.decision is Decision.APPROVE
        for other in others
    ):
        return "other arguments were approved"
    return None


def _within(job: LiveJob, of: Key, call: Invocation, rule: Rule, pending: Pending, *, terms: Terms, now: Now) -> Step:
    """Budget and rate of the rule, before its word is written."""
    if not rule.is_limited or of.state.requested is not None:
        charge = job.account(rule.name).charges.get(of.key) if rule.is_limited else None
        cost = None
    else:
        account = job.account(rule.name)
        charge = account.charges.get(of.key)
        cost = rule.budget.cost(call.args) if rule.budget is not None else 1.0
        if charge is None:
            pause_s = wait_s(account, rule, now)
            if pause_s > 0:
                return Step((), now.mono_s + pause_s)
            if cost is None or not account.allows(rule, of.key, cost):
                return _over(of, rule, cost, terms, now)
            account.ask(of.key, cost, now)
    if charge is not None and not charge.is_within:
        return _over(of, rule, charge.cost, terms, now)
    return _allow(of, call, rule, pending, cost, terms=terms, now=now)


def _over(of: Key, rule: Rule, cost: float | None, terms: Terms, now: Now) -> Step:
    detail = rule.name if cost is not None else f"{rule.name}: no such amount in the arguments"
    rejected = settlement.rejected(of, RejectReason.BUDGET, detail)
    return Step((rejected,), now.mono_s + terms.limits.lease_ttl_s)


def _allow(
    of: Key, call: Invocation, rule: Rule, pending: Pending, cost: float | None, *, terms: Terms, now: Now
) -> Step:
    """Approval where the rule wants it, the policy's word where the call was looked at, else the grant."""
    version = call.entry.tool_version
    again_s = now.mono_s + terms.limits.lease_ttl_s
    approved = of.state.decision is not None
    if rule.effect is PolicyEffect.APPROVAL and not approved:
        if of.state.requested is not None:
            return Step()
        return Step((ask_human(of, call, rule, cost, terms=terms, now=now),), again_s)
    needs_word = call.entry.irreversible or terms.policy.plain(call.entry.node.tool_name) is None
    if needs_word and not approved and version not in of.state.allowed_versions:
        return Step((_policy_allows(of, call, rule, cost),), again_s)
    elsewhere = _wait_for_another(of, call.node_id, pending, terms)
    if elsewhere is not None:
        return Step(elsewhere, again_s)
    pending.grants += 1
    rules = _run(of.job, pending.nodes, rule, terms)
    granted = _grant(pending.nodes[: len(rules)], rules, of, terms, pending.parent)
    return Step((granted,), now.mono_s + _rarer(terms, pending.grants))


def _wait_for_another(of: Key, node_id: str, pending: Pending, terms: Terms) -> Sequence[Emit] | None:
    """What is written while an equal call of another job is under way, and when it is no more; None: go on."""
    waiting = of.job.open_waits.get((waits.ANOTHER, node_id))
    execution = execution_id(of.job.job_id, node_id, of.key)
    ahead = terms.contents.ahead(of.job.job_id, execution, pending.scope) if pending.scope is not None else None
    named = f"{ahead.job_id}/{ahead.node_id}" if ahead is not None else None
    if waiting is not None and waiting.correlation_key != named:
        return (settlement.emit(of, waits.another_ended(of, node_id, waiting)),)
    if named is None:
        return None
    return () if waiting is not None else (settlement.emit(of, waits.for_another(of, node_id, named)),)


def _run(job: JobState, nodes: tuple[str, ...], rule: Rule, terms: Terms) -> tuple[str, ...]:
    """The rule of each node, up to the first later one that must be judged by itself."""
    rules = [rule.name]
    for node_id in nodes[1:LONGEST_RUN] if terms.limits.runs else ():
        plain = _rule_to_follow(job, node_id, terms)
        if plain is None:
            break
        rules.append(plain)
    return tuple(rules)


def _rule_to_follow(job: JobState, node_id: str, terms: Terms) -> str | None:
    entry = job.entry(node_id)
    if entry is None or entry.irreversible or entry.node.kind not in RUNNABLE or job.node_keys.get(node_id):
        return None
    return terms.policy.plain(entry.node.tool_name)


def _grant(nodes: tuple[str, ...], rules: tuple[str, ...], of: Key, terms: Terms, parent: bytes | None) -> Grant:
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
        rules=rules,
        idempotency_key=of.key,
        token=of.state.t,
        lease_id=derived("lease", job.job_id, of.key, str(of.state.t)),
        deadline_s=terms.limits.lease_ttl_s,
    )
    return Grant(message, terms.limits.lease_ttl_s, parent)


def _rarer(terms: Terms, grants: int) -> float:
    return terms.limits.lease_ttl_s * min(RARER_AT_MOST, 2 ** (grants - 1))


def pause_s(retry: Retry, attempts: int) -> float:
    """The longest time until the next try, after so many."""
    return min(retry.max_backoff_s, retry.backoff_s * retry.backoff_factor ** (attempts - 1))


def _schedule(of: Key, free: Reopened, terms: Terms, now: Now) -> Step:
    """A later try; or the end, where it is recorded that the tries took no effect. What is in doubt has its own cap."""
    entry = _entry(of)
    retry = entry.node.retry or Retry()
    if free.after_proof and of.state.attempts >= retry.max_attempts:
        return Step(
            (settlement.failed(of, of.state.reason or "no try is left"),), now.mono_s + terms.limits.lease_ttl_s
        )
    if free.scheduled:
        return Step()
    free.scheduled = True
    due = now.wall + timedelta(seconds=pause_s(retry, of.state.attempts) * (0.5 + terms.jitter() / 2))
    return Step((settlement.retry_scheduled(of, due.isoformat()),))


def _policy_allows(of: Key, call: Invocation, rule: Rule, cost: float | None) -> Emit:
    """In the log before the grant: an irreversible call starts only behind it, and budgets count it."""
    version = call.entry.tool_version
    event = ev.PolicyAllowed(
        job_id=of.job.job_id,
        node_id=call.node_id,
        idempotency_key=of.key,
        args_hash=call.args_hash,
        tool_version=version,
        rule=rule.name,
        cost=cost,
    )
    return settlement.emit(of, written(event, of.key, version, rule.name))
