"""What an amendment of a job's seal states, where a fact has come behind it that nobody had proved before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aetheris.proofs.amendments import ENDED, LateFacts, is_late_fact
from aetheris.proofs.authorship import Authorship
from aetheris.proofs.canonical import hash_or_empty
from aetheris.proofs.disclosures import calls_root
from aetheris.proofs.execution import LoadBlob, execution_hash, outcome_hash
from aetheris.proofs.history import History
from aetheris.proofs.recomputed_calls import RecomputedCalls
from aetheris.proofs.records import Fact, RawRecord
from aetheris.proofs.sealed import sealed_count
from aetheris.proofs.sealed_prefix import taken, trusted_seals
from aetheris.proofs.seals import seal_payload
from aetheris.proofs.trust import TrustedKey
from aetheris.proofs.validity import Validity

_DRIFT = "confirmation_failed"
_TOLD = ("idempotency_key", "place", "reason", "resource")
"""By which a drift is the same as one before."""


@dataclass(frozen=True, slots=True)
class DueAmendment:
    """What would be sealed now of a sealed job, still unsigned, and what it is for."""

    first_sealed_at: str
    last_sealed_at: str
    """Of the seal that it amends."""
    offsets: tuple[int, ...]
    """Of the facts that no seal covers yet, in log order; at least one."""
    stated: dict[str, Any]
    """All that a seal's payload has but its time and its salt."""

    def payload(self, *, sealed_at: str, salt: str) -> dict[str, Any]:
        """As `seal_payload`."""
        return seal_payload(**self.stated, sealed_at=sealed_at, salt=salt)


def due_amendment(
    records: Sequence[RawRecord], keys: Sequence[TrustedKey], load_blob: LoadBlob | None
) -> DueAmendment | None:
    """What of a job's records its seals, by these keys, should cover and do not; None where nothing is due.

    A fact that says no more than one which is covered already is none: whoever may write can only repeat it. Nor is
    there anything due of a job that no such key has sealed.
    """
    seals = trusted_seals(taken(records), keys)
    if not seals:
        return None
    first, last = seals[0], seals[-1]
    late = LateFacts(sealed_count(first), frozenset(one.at for one in seals))
    history = taken(records, late).history
    fresh = list(_fresh(history, sealed_count(last)))
    if not fresh:
        return None
    count = 1 + max(last.at, *(fact.at for fact in _late(history, late.begin)))
    return DueAmendment(
        first_sealed_at=first.text("sealed_at"),
        last_sealed_at=last.text("sealed_at"),
        offsets=tuple(fact.offset for fact in fresh),
        stated=_stated(records[:count], late, last, load_blob),
    )


def _stated(records: Sequence[RawRecord], late: LateFacts, last: Fact, load_blob: LoadBlob | None) -> dict[str, Any]:
    audit = taken(records, LateFacts(late.begin, late.seals))
    count, validity = len(records), Validity(audit.history)
    return {
        "tenant": last.text("tenant"),
        "job_id": last.job,
        "event_count": count,
        "root": audit.chain.root(count),
        "tree": audit.chain.tree(count),
        "execution_hash": execution_hash(audit.history),
        "outcome_hash": outcome_hash(validity, load_blob).value,
        "calls": calls_root(validity, RecomputedCalls(validity, load_blob), count) or "",
        "amends": audit.lines[last.at],
        "consistency": [step.hex() for step in audit.chain.consistency(sealed_count(last), count)],
    }


def _fresh(history: History, covered: int) -> Iterator[Fact]:
    """The ends of tries and the drifts from there on that say what none before them does."""
    known: set[tuple[str, ...]] = set()
    for fact in history.facts:
        told = _told(fact, history.authors)
        if told is not None and told not in known:
            known.add(told)
            if fact.at >= covered:
                yield fact


def _late(history: History, begin: int) -> Iterator[Fact]:
    return (fact for fact in history.facts[begin:] if fact.type and fact.type != "job_sealed")


def _told(fact: Fact, authors: Authorship) -> tuple[str, ...] | None:
    if not is_late_fact(fact, authors):
        return None
    if fact.type == ENDED:
        return fact.type, fact.key, fact.invocation_id, fact.outcome, fact.text("output_hash")
    return (fact.type, hash_or_empty({name: fact.body.get(name) for name in _TOLD})) if fact.type == _DRIFT else None
