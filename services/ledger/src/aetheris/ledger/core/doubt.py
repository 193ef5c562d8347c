"""Started, no settlement, its lease gone: the ladder of docs/guarantees.md, "In doubt". The last rung ends it.

What is parked goes down it once more when it becomes known that its try can act no more: a human is asked meanwhile.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from aetheris.ledger.core import settlement
from aetheris.ledger.core.decisions import Ask, Decision, Emit, Facts
from aetheris.ledger.core.memory import Started, Step, Terms, deciders
from aetheris.ledger.core.settlement import Key
from aetheris.protocol.fold.state import Entry, KeyState, St
from aetheris.protocol.messages.commands import Verification
from aetheris.protocol.plan.graph import EffectClass, Kind, OnInDoubt

BLIND_LOOKS = 3
"""How often an effect store that doesn't answer is asked again before the ladder goes on without it."""

UNPINNED_TIMEOUT_S = 30.0
"""The longest that a kind without a tool may run."""

ANSWER_TIMEOUT_S = 120.0
"""The longest that a model takes, unless its configuration says otherwise."""

LONGEST_PAUSE_S = 60.0

LEASE_EXPIRED, WORKER_ENDED = "lease_expired", "worker_ended"
"""Why the ledger itself doubts a try; any other cause is the try's own word."""


def doubt(of: Key, tried: Started, terms: Terms, facts: Facts, now_s: float) -> Step:
    """The next rung for a key that is started, or parked."""
    entry = of.job.entry(of.state.node_id, of.started.revision)
    if entry is None:
        return Step()
    trusted_s = _lease_speaks_until(of, tried, entry, terms=terms, facts=facts, now_s=now_s)
    if trusted_s is not None:
        return Step((), trusted_s)
    again_s = now_s + terms.limits.lease_ttl_s
    tried.doubt_s = now_s if tried.doubt_s is None else tried.doubt_s
    effect = caught_up(of, facts)
    if effect is not None:
        return Step((effect,), again_s)
    if facts.effects is None and tried.blind < BLIND_LOOKS:
        tried.blind += 1
        return Step((), again_s)
    return _by_class(of, tried, entry, terms, now_s)


def caught_up(of: Key, facts: Facts) -> Emit | None:
    """The catch-up for any nonce in live that has left an effect, the one in charge first."""
    nonces = (facts.effects or {}).get(of.key, {})
    for nonce in sorted(of.state.live & nonces.keys(), key=lambda nonce: (nonce != of.state.n, nonce)):
        effect = settlement.stored_effect(of, nonce, nonces[nonce])
        if effect is not None:
            return settlement.catch_up(of, effect)
    return None


def ask_anew(tried: Started, state: KeyState) -> None:
    """A parked call whose try can act no more from here on: the outside is asked again, as often as at first."""
    if state.st is St.PARKED:
        tried.unknowns, tried.next_ask_s = 0, 0.0


def _give_up(
    of: Key, tried: Started, terms: Terms, reason: str, evidence: Sequence[object] = (), *, now_s: float
) -> Step:
    """The last rung; of what is parked a human is asked already."""
    if of.state.st is St.PARKED:
        return Step()
    return Step((_exhausted(of, tried, terms, reason, evidence),), now_s + terms.limits.lease_ttl_s)


def _exhausted(of: Key, tried: Started, terms: Terms, reason: str, evidence: Sequence[object]) -> Emit:
    """A human, or failure, as configured; a call that only reads needs no human."""
    before = settlement.in_doubt(of, _cause(tried))
    entry = of.job.entry(of.state.node_id, of.started.revision)
    if entry is not None and entry.effect_class is EffectClass.PURE:
        return settlement.failed(of, reason, *before)
    if of.state.cancel_requested:
        return settlement.failed(of, settlement.CANCELLED, *before)
    if _on_in_doubt(of, entry, terms) == "fail":
        return settlement.failed(of, f"failed, not sure: {reason}", *before)
    return settlement.parked(of, reason, deciders(of.state, terms), ({"cause": _cause(tried)}, *evidence), *before)


def _on_in_doubt(of: Key, entry: Entry | None, terms: Terms) -> OnInDoubt:
    """The job's word goes before the tool's, and that before the setting."""
    job = of.job.created.options
    pin = entry.pin if entry is not None else None
    return (job and job.on_in_doubt) or (pin and pin.on_in_doubt) or terms.limits.on_in_doubt


def _lease_speaks_until(
    of: Key, tried: Started, entry: Entry, *, terms: Terms, facts: Facts, now_s: float
) -> float | None:
    """When to look again, while the lease still speaks for the try; None from when it is doubted."""
    if tried.cause is not None:
        return None
    ttl_s = terms.limits.lease_ttl_s
    if facts.held is not None and facts.held.get(of.key, False):
        return now_s + ttl_s
    if facts.leases_lost_s is not None:
        # a missing lease is no evidence until every holder had the time to take it up again, or to end
        trusted_s = facts.leases_lost_s + ttl_s + _timeout_s(entry)
        if now_s < trusted_s:
            return min(trusted_s, now_s + ttl_s)
    tried.cause = LEASE_EXPIRED
    return None


def _timeout_s(entry: Entry) -> float:
    if entry.timeout_s is None:
        return ANSWER_TIMEOUT_S if entry.node.kind is Kind.LLM else UNPINNED_TIMEOUT_S
    return entry.timeout_s


def _by_class(of: Key, tried: Started, entry: Entry, terms: Terms, now_s: float) -> Step:
    if entry.effect_class is EffectClass.PROBEABLE:
        return _probe(of, tried, entry, terms, now_s)
    if entry.effect_class is EffectClass.OPAQUE or of.state.st is St.PARKED:
        return _give_up(of, tried, terms, "nobody can tell whether an opaque call took effect", now_s=now_s)
    evidence = {"cause": _cause(tried), "effect_class": entry.effect_class.value}
    return _reopen(of, tried, entry, terms=terms, by="policy", evidence=evidence, now_s=now_s)


def _reopen(
    of: Key,
    tried: Started,
    entry: Entry,
    *,
    terms: Terms,
    by: Literal["probe", "policy"],
    evidence: Mapping[str, object],
    now_s: float,
) -> Step:
    if of.state.attempts >= _most_tries(entry, terms):
        return _give_up(of, tried, terms, "no try is left", (evidence,), now_s=now_s)
    free = settlement.reopened(of, by, (evidence,), *settlement.in_doubt(of, _cause(tried)))
    return Step((free,), now_s + terms.limits.lease_ttl_s)


def _probe(of: Key, tried: Started, entry: Entry, terms: Terms, now_s: float) -> Step:
    """Ask, wait for what makes "not found" a proof, ask again; what was found has settled the key by itself."""
    provable_s = _provable_s(tried, entry)
    if provable_s is not None and tried.absent_s is not None and tried.absent_s >= provable_s:
        return _reopen(of, tried, entry, terms=terms, by="probe", evidence=_absence(of, tried), now_s=now_s)
    answer_s = _answer_awaited_until(tried, provable_s, terms, now_s)
    if answer_s is not None:
        return Step((), answer_s)
    if tried.unknowns >= terms.limits.probe_tries:
        return _give_up(of, tried, terms, "the outside does not say whether the call took effect", now_s=now_s)
    wait_s = _wait_before_asking(tried, provable_s, terms, now_s)
    if wait_s is None:
        reason = "it was not found, but its worker is not known to have ended"
        return _give_up(of, tried, terms, reason, now_s=now_s)
    if wait_s > now_s:
        return Step((), wait_s)
    return Step(_ask(of, tried, terms, now_s), _answer_awaited_until(tried, provable_s, terms, now_s))


def _provable_s(tried: Started, entry: Entry) -> float | None:
    """From when on a question's "not found" is a proof; None while the try may still act."""
    if tried.ended_s is None:
        return None
    return tried.ended_s + (entry.pin.settles_s if entry.pin is not None else 0.0)


def _absence(of: Key, tried: Started) -> Mapping[str, object]:
    """What the reopening rests on; how long after the end the question was sent, for the proofs to judge."""
    asked_s = (tried.absent_s or 0.0) - (tried.ended_s or 0.0)
    end = {"returned": of.nonce} if tried.returned else {"worker_ended": list(tried.life)}
    evidence: dict[str, object] = {"not_found": of.started.external_key, **end}
    return {**evidence, "asked_after_s": math.floor(asked_s * 1000) / 1000}


def _answer_awaited_until(tried: Started, provable_s: float | None, terms: Terms, now_s: float) -> float | None:
    """How long the question under way is worth waiting for; None: there is none, or it was in vain."""
    if tried.ask is None:
        return None
    sent_s = tried.ask[1]
    if provable_s is not None and sent_s < provable_s <= now_s:
        tried.ask = None  # its "not found" would prove nothing; its "found" still counts when it comes
        return None
    if now_s >= sent_s + terms.limits.probe_wait_s:
        tried.late[tried.ask[0]] = sent_s
        note_unknown(tried, terms, now_s)
        return None
    late_s = sent_s + terms.limits.probe_wait_s
    return min(late_s, provable_s) if provable_s is not None and provable_s > now_s else late_s


def note_unknown(tried: Started, terms: Terms, now_s: float) -> None:
    """A question that got no answer: the next one waits, longer each time."""
    tried.ask = None
    tried.unknowns += 1
    tried.next_ask_s = now_s + min(LONGEST_PAUSE_S, terms.limits.probe_backoff_s * 2 ** (tried.unknowns - 1))


def _wait_before_asking(tried: Started, provable_s: float | None, terms: Terms, now_s: float) -> float | None:
    """When to ask; None: asking is of no use any more."""
    if tried.absent_s is None:
        return tried.next_ask_s
    if provable_s is not None:
        return max(provable_s, tried.next_ask_s)
    give_up_s = (tried.doubt_s if tried.doubt_s is not None else now_s) + terms.limits.end_wait_s
    # asked once more at the end: what was sent late may have landed by then
    return None if tried.absent_s >= give_up_s else max(give_up_s, tried.next_ask_s)


def _ask(of: Key, tried: Started, terms: Terms, now_s: float) -> Sequence[Decision]:
    ask = terms.fresh_id()
    tried.ask = (ask, now_s)
    question = Verification(
        job_id=of.job.job_id,
        birth=of.job.birth,
        node_id=of.state.node_id,
        idempotency_key=of.key,
        invocation_id=of.nonce,
        external_key=of.started.external_key,
        tool_name=of.started.tool_name,
        tool_version=of.started.tool_version,
        ask=ask,
    )
    decisions: list[Decision] = [Ask(question)]
    before = settlement.in_doubt(of, _cause(tried))
    if before:
        decisions.insert(0, settlement.emit(of, *before))
    return decisions


def _most_tries(entry: Entry, terms: Terms) -> int:
    """The plan's word where it has one; else what the settings allow to a call in doubt."""
    return entry.node.retry.max_attempts if entry.node.retry is not None else terms.limits.max_tries


def _cause(tried: Started) -> str:
    return tried.cause or LEASE_EXPIRED


def is_reported(state: KeyState) -> bool:
    """Whether it is the try in charge that said first that it is in doubt: it lives, and may fail so again at once."""
    return state.in_doubt is not None and state.in_doubt not in (LEASE_EXPIRED, WORKER_ENDED)
