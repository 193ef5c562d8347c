"""Started, no settlement, its lease gone: the ladder of docs/guarantees.md, "In doubt". The last rung ends it.

What is parked goes down it once more when it becomes known that its try can act no more: a human is asked meanwhile.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from aetheris.ledger.core import settlement
from aetheris.ledger.core.decisions import Ask, Decision, Emit, Facts
from aetheris.ledger.core.live_jobs import CurrentInvocation, DecisionContext, TimedDecision
from aetheris.ledger.core.settlement import JobKey
from aetheris.protocol.fold.start import is_stopped
from aetheris.protocol.fold.state import KeyState, KeyStatus, PlanEntry
from aetheris.protocol.messages.commands import Verification
from aetheris.protocol.plan.graph import EffectClass, Kind, OnInDoubt
from aetheris.protocol.planning.invocation import has_hidden

BLIND_LOOKS = 3
"""How often an effect store that doesn't answer is asked again before the ladder goes on without it."""

UNPINNED_TIMEOUT_S = 30.0
"""The longest that a kind without a tool may run."""

ANSWER_TIMEOUT_S = 120.0
"""The longest that a model takes, unless its configuration says otherwise."""

LONGEST_PAUSE_S = 60.0

DIVERGED = "diverged"
"""Why a body doubts itself: its code asks for other calls than it has made before."""

LEASE_EXPIRED, WORKER_ENDED = "lease_expired", "worker_ended"
"""Why the ledger itself doubts a try; any other cause is the try's own word."""


def doubt(
    job_key: JobKey,
    invocation: CurrentInvocation,
    context: DecisionContext,
    facts: Facts,
    now_s: float,
    *,
    takeovers: int | None = None,
) -> TimedDecision:
    """The next rung for a key that is started, or parked.

    `takeovers`: of a body, how often it has started since one of its calls settled.
    """
    entry = job_key.job.entry(job_key.state.node_id, job_key.started.revision)
    if entry is None:
        return TimedDecision()
    trusted_s = _lease_speaks_until(job_key, invocation, entry, context=context, facts=facts, now_s=now_s)
    if trusted_s is not None:
        return TimedDecision((), trusted_s)
    again_s = now_s + context.limits.lease_ttl_s
    invocation.doubt_s = now_s if invocation.doubt_s is None else invocation.doubt_s
    if takeovers is not None:
        return _of_body(job_key, invocation, entry, takeovers, context=context, now_s=now_s)
    effect = caught_up(job_key, facts)
    if effect is not None:
        return TimedDecision((effect,), again_s)
    if facts.effects is None and invocation.blind < BLIND_LOOKS:
        invocation.blind += 1
        return TimedDecision((), again_s)
    return _by_class(job_key, invocation, entry, context, now_s)


def caught_up(job_key: JobKey, facts: Facts) -> Emit | None:
    """The catch-up for any invocation in live that has left an effect, the one in charge first."""
    invocation_ids = (facts.effects or {}).get(job_key.key, {})
    for invocation_id in sorted(
        job_key.state.unresolved & invocation_ids.keys(),
        key=lambda invocation_id: (invocation_id != job_key.state.current_invocation, invocation_id),
    ):
        effect = settlement.stored_effect(job_key, invocation_id, invocation_ids[invocation_id])
        if effect is not None:
            return settlement.catch_up(job_key, effect)
    return None


def ask_anew(invocation: CurrentInvocation, state: KeyState) -> None:
    """A parked call whose invocation can no longer act: the external system is asked again, as often as at first."""
    if state.status is KeyStatus.PARKED:
        invocation.unknowns, invocation.next_ask_s = 0, 0.0


def _give_up(
    job_key: JobKey,
    invocation: CurrentInvocation,
    context: DecisionContext,
    reason: str,
    evidence: Sequence[object] = (),
    *,
    now_s: float,
) -> TimedDecision:
    """The last rung; of what is parked a human is asked already."""
    if job_key.state.status is KeyStatus.PARKED:
        return TimedDecision()
    return TimedDecision(
        (_exhausted(job_key, invocation, context, reason, evidence),), now_s + context.limits.lease_ttl_s
    )


def _exhausted(
    job_key: JobKey, invocation: CurrentInvocation, context: DecisionContext, reason: str, evidence: Sequence[object]
) -> Emit:
    """A human, or failure, as configured; a call that only reads needs no human."""
    before = settlement.in_doubt(job_key, _cause(invocation))
    entry = job_key.job.entry(job_key.state.node_id, job_key.started.revision)
    if entry is not None and entry.effect_class is EffectClass.PURE and entry.node.kind is not Kind.WORKFLOW:
        return settlement.failed(job_key, reason, *before)
    if job_key.state.cancel_requested:
        return settlement.failed(job_key, settlement.CANCELLED, *before)
    if _on_in_doubt(job_key, entry, context) == "fail":
        return settlement.failed(job_key, f"failed, not sure: {reason}", *before)
    return settlement.parked(
        job_key,
        reason,
        ({"cause": _cause(invocation)}, *evidence),
        *before,
    )


def _on_in_doubt(job_key: JobKey, entry: PlanEntry | None, context: DecisionContext) -> OnInDoubt:
    """The job's word goes before the tool's, and that before the setting."""
    job = job_key.job.created.options
    pin = entry.pin if entry is not None else None
    return (job and job.on_in_doubt) or (pin and pin.on_in_doubt) or context.limits.on_in_doubt


def _lease_speaks_until(
    job_key: JobKey,
    invocation: CurrentInvocation,
    entry: PlanEntry,
    *,
    context: DecisionContext,
    facts: Facts,
    now_s: float,
) -> float | None:
    """When to look again, while the lease still speaks for the try; None from when it is doubted."""
    if invocation.cause is not None:
        return None
    ttl_s = context.limits.lease_ttl_s
    if facts.held is not None and facts.held.get(job_key.key, False):
        return now_s + ttl_s
    if facts.leases_lost_s is not None:
        # a missing lease is no evidence until every holder had the time to take it up again, or to end
        trusted_s = facts.leases_lost_s + ttl_s + _timeout_s(entry)
        if now_s < trusted_s:
            return min(trusted_s, now_s + ttl_s)
    invocation.cause = LEASE_EXPIRED
    return None


def _timeout_s(entry: PlanEntry) -> float:
    if entry.timeout_s is None:
        return ANSWER_TIMEOUT_S if entry.node.kind is Kind.LLM else UNPINNED_TIMEOUT_S
    return entry.timeout_s


def _of_body(
    job_key: JobKey,
    invocation: CurrentInvocation,
    entry: PlanEntry,
    takeovers: int,
    *,
    context: DecisionContext,
    now_s: float,
) -> TimedDecision:
    """Code does nothing but by its calls: it runs again, unless it can't go on, or gets nowhere."""
    if job_key.state.status is KeyStatus.PARKED:
        return TimedDecision()
    reason = None
    if is_stopped(job_key.job, entry):
        pass  # reopened, it ends as what never goes on
    elif invocation.cause == DIVERGED:
        reason = "its code does not ask for what it has done before"
    elif takeovers >= _most_invocations(entry, context):
        reason = f"its code was begun {takeovers} times, and none of its calls has ended meanwhile"
    if reason is not None:
        return _give_up(job_key, invocation, context, reason, invocation.evidence, now_s=now_s)
    evidence = {"cause": _cause(invocation), "effect_class": entry.effect_class.value}
    free = settlement.reopened(job_key, "policy", (evidence,), *settlement.in_doubt(job_key, _cause(invocation)))
    return TimedDecision((free,), now_s + context.limits.lease_ttl_s)


def _by_class(
    job_key: JobKey, invocation: CurrentInvocation, entry: PlanEntry, context: DecisionContext, now_s: float
) -> TimedDecision:
    if entry.effect_class is EffectClass.PROBEABLE:
        return _probe(job_key, invocation, entry, context, now_s)
    if entry.effect_class is EffectClass.OPAQUE or job_key.state.status is KeyStatus.PARKED:
        return _give_up(job_key, invocation, context, "nobody can tell whether an opaque call took effect", now_s=now_s)
    evidence = {"cause": _cause(invocation), "effect_class": entry.effect_class.value}
    return _reopen(job_key, invocation, entry, context=context, by="policy", evidence=evidence, now_s=now_s)


def _reopen(
    job_key: JobKey,
    invocation: CurrentInvocation,
    entry: PlanEntry,
    *,
    context: DecisionContext,
    by: Literal["probe", "policy"],
    evidence: Mapping[str, object],
    now_s: float,
) -> TimedDecision:
    if job_key.state.attempt_count >= _most_invocations(entry, context):
        return _give_up(job_key, invocation, context, "no try is left", (evidence,), now_s=now_s)
    free = settlement.reopened(job_key, by, (evidence,), *settlement.in_doubt(job_key, _cause(invocation)))
    return TimedDecision((free,), now_s + context.limits.lease_ttl_s)


def _probe(
    job_key: JobKey, invocation: CurrentInvocation, entry: PlanEntry, context: DecisionContext, now_s: float
) -> TimedDecision:
    """Ask, wait for what makes "not found" a proof, ask again; what was found has settled the key by itself."""
    provable_s = _provable_s(invocation, entry)
    if provable_s is not None and invocation.absent_s is not None and invocation.absent_s >= provable_s:
        return _reopen(
            job_key, invocation, entry, context=context, by="probe", evidence=_absence(job_key, invocation), now_s=now_s
        )
    answer_s = _answer_awaited_until(invocation, provable_s, context, now_s)
    if answer_s is not None:
        return TimedDecision((), answer_s)
    if invocation.unknowns >= context.limits.probe_tries:
        return _give_up(
            job_key, invocation, context, "the external system does not say whether the call took effect", now_s=now_s
        )
    wait_s = _wait_before_asking(invocation, provable_s, context, now_s)
    if wait_s is None:
        reason = "it was not found, but its worker is not known to have ended"
        return _give_up(job_key, invocation, context, reason, now_s=now_s)
    if wait_s > now_s:
        return TimedDecision((), wait_s)
    return TimedDecision(
        _ask(job_key, invocation, context, now_s), _answer_awaited_until(invocation, provable_s, context, now_s)
    )


def _provable_s(invocation: CurrentInvocation, entry: PlanEntry) -> float | None:
    """From when on a question's "not found" is a proof; None while the try may still act."""
    if invocation.ended_s is None:
        return None
    return invocation.ended_s + (entry.pin.settles_s if entry.pin is not None else 0.0)


def _absence(job_key: JobKey, invocation: CurrentInvocation) -> Mapping[str, object]:
    """What the reopening rests on; how long after the end the question was sent, for the proofs to judge."""
    asked_s = (invocation.absent_s or 0.0) - (invocation.ended_s or 0.0)
    end = {"returned": job_key.invocation_id} if invocation.returned else {"worker_ended": list(invocation.life)}
    evidence: dict[str, object] = {"not_found": job_key.started.external_key, **end}
    return {**evidence, "asked_after_s": math.floor(asked_s * 1000) / 1000}


def _answer_awaited_until(
    invocation: CurrentInvocation, provable_s: float | None, context: DecisionContext, now_s: float
) -> float | None:
    """How long the question under way is worth waiting for; None: there is none, or it was in vain."""
    if invocation.ask is None:
        return None
    sent_s = invocation.ask[1]
    if provable_s is not None and sent_s < provable_s <= now_s:
        invocation.ask = None  # its "not found" would prove nothing; its "found" still counts when it comes
        return None
    if now_s >= sent_s + context.limits.probe_wait_s:
        invocation.late[invocation.ask[0]] = sent_s
        note_unknown(invocation, context, now_s)
        return None
    late_s = sent_s + context.limits.probe_wait_s
    return min(late_s, provable_s) if provable_s is not None and provable_s > now_s else late_s


def note_unknown(invocation: CurrentInvocation, context: DecisionContext, now_s: float) -> None:
    """A question that got no answer: the next one waits, longer each time."""
    invocation.ask = None
    invocation.unknowns += 1
    invocation.next_ask_s = now_s + min(
        LONGEST_PAUSE_S, context.limits.probe_backoff_s * 2 ** (invocation.unknowns - 1)
    )


def _wait_before_asking(
    invocation: CurrentInvocation, provable_s: float | None, context: DecisionContext, now_s: float
) -> float | None:
    """When to ask; None: asking is of no use any more."""
    if invocation.absent_s is None:
        return invocation.next_ask_s
    if provable_s is not None:
        return max(provable_s, invocation.next_ask_s)
    give_up_s = (invocation.doubt_s if invocation.doubt_s is not None else now_s) + context.limits.end_wait_s
    # asked once more at the end: what was sent late may have landed by then
    return None if invocation.absent_s >= give_up_s else max(give_up_s, invocation.next_ask_s)


def _ask(job_key: JobKey, invocation: CurrentInvocation, context: DecisionContext, now_s: float) -> Sequence[Decision]:
    ask = context.fresh_id()
    invocation.ask = (ask, now_s)
    question = Verification(
        job_id=job_key.job.job_id,
        birth=job_key.job.creation_offset,
        node_id=job_key.state.node_id,
        idempotency_key=job_key.key,
        invocation_id=job_key.invocation_id,
        external_key=job_key.started.external_key,
        tool_name=job_key.started.tool_name,
        tool_version=job_key.started.tool_version,
        ask=ask,
        hidden=has_hidden(job_key.job, job_key.state.node_id),
    )
    decisions: list[Decision] = [Ask(question)]
    before = settlement.in_doubt(job_key, _cause(invocation))
    if before:
        decisions.insert(0, settlement.emit(job_key, *before))
    return decisions


def _most_invocations(entry: PlanEntry, context: DecisionContext) -> int:
    """The plan's word where it has one; else what the settings allow to a call in doubt."""
    return entry.node.retry.max_attempts if entry.node.retry is not None else context.limits.max_tries


def _cause(invocation: CurrentInvocation) -> str:
    return invocation.cause or LEASE_EXPIRED


def is_reported(state: KeyState) -> bool:
    """Whether it is the try in charge that said first that it is in doubt: it lives, and may fail so again at once."""
    return state.in_doubt is not None and state.in_doubt not in (LEASE_EXPIRED, WORKER_ENDED)
