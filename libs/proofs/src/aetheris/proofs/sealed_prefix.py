"""The part of a job's records that a seal is over; what lies behind it is no part of what is proved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aetheris.proofs import seals
from aetheris.proofs.amendments import LateFacts, standing
from aetheris.proofs.audit import Audit
from aetheris.proofs.records import Fact, RawRecord, Violation, violation
from aetheris.proofs.sealed import sealed_count
from aetheris.proofs.trust import SEAL, TrustedKey, keyring


@dataclass(frozen=True, slots=True)
class SealedPrefix:
    """A job's records as far as they are judged: all of them while no seal by a trusted key is over their beginning."""

    records: Sequence[RawRecord]
    """Those that the seal covers, the last that amends it where any does, and the seal."""
    audit: Audit
    """It has taken these."""
    behind: tuple[Violation, ...] = ()
    """What lies behind what is sealed, but for seals and late facts: it is named, and breaks no rule."""
    seal_at: int | None = None
    """The seal's place among all records, where something else lies behind it, or before it."""
    full_root: str = ""
    """The root over all records, where they are more."""
    left_out: frozenset[int] = frozenset()
    """Places among `records` of what says nothing: behind what was sealed at first, and no late fact."""
    amended: tuple["SealedPrefix", int] | None = None
    """What was sealed at first, and how often that was amended; None where it was not."""

    @property
    def counted(self) -> Sequence[RawRecord]:
        """Those of `records` that say something."""
        return [record for at, record in enumerate(self.records) if at not in self.left_out]


def sealed_prefix(records: Sequence[RawRecord], keys: Sequence[TrustedKey]) -> SealedPrefix:
    """What of a job's records is judged. Whether the seal says the truth of them, the rules of seals say."""
    audit = taken(records)
    found = trusted_seals(audit, keys)
    if not found:
        return SealedPrefix(records, audit)
    first = _prefix(records, audit, found[:1])
    return first if len(found) == 1 else replace(_prefix(records, audit, found), amended=(first, len(found) - 1))


def trusted_seals(audit: Audit, keys: Sequence[TrustedKey]) -> list[Fact]:
    """The first seal that a trusted key signed, in its time, over just these records; and those that amend it."""
    known = keyring(keys, SEAL)
    return list(standing([seal for seal in audit.history.seals if _is_over(seal, audit, known)], audit.lines))


def taken(records: Sequence[RawRecord], late: LateFacts | None = None) -> Audit:
    """An audit of these records."""
    audit = Audit(late)
    for record in records:
        audit.add(record)
    return audit


def _prefix(records: Sequence[RawRecord], audit: Audit, found: Sequence[Fact]) -> SealedPrefix:
    """By a seal, and those that amend it."""
    first, seal = found[0], found[-1]
    count = sealed_count(seal)
    if count == seal.at == len(records) - 1 and seal is first:
        return SealedPrefix(records, audit)
    kept = (*records[:count], records[seal.at])
    late = LateFacts(sealed_count(first), frozenset({*(one.at for one in found[:-1]), count}))
    judged = taken(kept, late if seal is not first else None)
    behind = tuple(
        _left_out(fact)
        for fact in audit.history.facts[late.begin :]
        if fact.at in late.left_out or (fact.at >= count and fact is not seal)
    )
    full_root = audit.chain.root(len(records))
    return SealedPrefix(kept, judged, behind, seal.at, full_root, frozenset(late.left_out))


def _is_over(seal: Fact, audit: Audit, keys: Mapping[str, TrustedKey]) -> bool:
    key, count = keys.get(seal.text("key_id")), sealed_count(seal)
    if key is None or not 0 < count <= seal.at or audit.chain.root(count) != seal.text("root"):
        return False
    return key.refusal(seal.text("sealed_at")) is None and seals.verify(seal.body, key.public_key)


def _left_out(fact: Fact) -> Violation:
    said = fact.type or fact.claims or "a record that can't be read"
    return violation("after_seal", fact, f"{said}: behind what is sealed, not part of it")
