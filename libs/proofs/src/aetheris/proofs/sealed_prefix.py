"""The part of a job's records that a seal is over; what lies behind it is no part of what is proved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aetheris.proofs import seals
from aetheris.proofs.audit import Audit
from aetheris.proofs.records import Fact, RawRecord, Violation, violation
from aetheris.proofs.sealed import sealed_count
from aetheris.proofs.trust import SEAL, TrustedKey, keyring


@dataclass(frozen=True, slots=True)
class SealedPrefix:
    """A job's records as far as they are judged: all of them while no seal by a trusted key is over their beginning."""

    records: Sequence[RawRecord]
    """Those that the seal covers, and the seal."""
    audit: Audit
    """It has taken these."""
    behind: tuple[Violation, ...] = ()
    """What lies behind what is sealed, but for the seal: it is named, and breaks no rule."""
    seal_at: int | None = None
    """The seal's place among all records, where something else lies behind it, or before it."""
    full_root: str = ""
    """The root over all records, where they are more."""


def sealed_prefix(records: Sequence[RawRecord], keys: Sequence[TrustedKey]) -> SealedPrefix:
    """What of a job's records is judged. Whether the seal says the truth of them, the rules of seals say."""
    audit = _taken(records)
    seal = _seal(audit, keyring(keys, SEAL))
    if seal is None or sealed_count(seal) == seal.at == len(records) - 1:
        return SealedPrefix(records, audit)
    count = sealed_count(seal)
    behind = tuple(_left_out(fact) for fact in audit.history.facts[count:] if fact is not seal)
    kept = (*records[:count], records[seal.at])
    return SealedPrefix(kept, _taken(kept), behind, seal.at, audit.chain.root(len(records)))


def _taken(records: Sequence[RawRecord]) -> Audit:
    audit = Audit()
    for record in records:
        audit.add(record)
    return audit


def _seal(audit: Audit, keys: Mapping[str, TrustedKey]) -> Fact | None:
    """The first that a trusted key signed, in its time, over just these records."""
    for seal in audit.history.seals:
        key, count = keys.get(seal.text("key_id")), sealed_count(seal)
        if key is None or not 0 < count <= seal.at or audit.chain.root(count) != seal.text("root"):
            continue
        if key.refusal(seal.text("sealed_at")) is None and seals.verify(seal.body, key.public_key):
            return seal
    return None


def _left_out(fact: Fact) -> Violation:
    said = fact.type or fact.claims or "a record that can't be read"
    return violation("after_seal", fact, f"{said}: behind what is sealed, not part of it")
