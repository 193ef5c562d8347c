"""Lines of the log of seals against a seal that somebody has kept: how it was amended since (docs/evidence.md).

Offline, by lines alone: each amendment is signed, names the seal before it, and proves that the job's tree only grew.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aetheris.proofs.amendments import amends, line_hash
from aetheris.proofs.claims import equivocal, named_job, read_claim
from aetheris.proofs.merkle import consistency_holds
from aetheris.proofs.records import RawRecord
from aetheris.proofs.sealed import covers
from aetheris.proofs.sealed_leaves import BadRecordProof, hash_in, open_seal, path_in
from aetheris.proofs.sealed_prefix import sealed_prefix
from aetheris.proofs.trust import SEAL, TrustedKey, keyring

Wrong = tuple[str, str]
"""(rule, message)"""


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A line that somebody shows, and its leaf in the log of seals; None where nothing proves that it lies there."""

    line: bytes
    leaf: int | None


@dataclass(frozen=True, slots=True)
class LaterSeal:
    """An amendment of a kept seal, or of what amends that; `line`: the SHA-256 of its line."""

    line: str
    amends: str
    leaf: int | None
    event_count: int
    root: str
    tree: str
    sealed_at: str
    key_id: str

    def to_json(self) -> dict[str, Any]:
        """As reports have it."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class LaterSeals:
    """What a job's seal was amended by, the smallest first, and what is wrong with what was shown.

    `unsigned`: lines that name the job and that no key of those given has signed; they say nothing, whoever wrote them.
    """

    amendments: tuple[LaterSeal, ...]
    wrong: tuple[Wrong, ...]
    unsigned: int


def later_seals(kept: bytes, shown: Iterable[ShownLine], keys: Sequence[TrustedKey]) -> LaterSeals:
    """What the lines say of the job whose seal's line is `kept`; lines of others are passed over.

    Raises:
        BadRecordProof: the kept line is no seal that one of the keys signed in its time.
    """
    old = open_seal(kept, keys)
    mine = [one for one in shown if named_job(one.line) == old["job_id"]]
    lines = _by_hash(mine)
    seals = dict[str, Mapping[str, Any]]()
    for name, one in lines.items():
        try:
            seals[name] = open_seal(one.line, keys)
        except BadRecordProof:
            continue
    own = line_hash(kept)
    signed = [kept, *(lines[name].line for name in seals if name != own)]
    amending = _reached(own, old, seals)
    found = [_later_seal(name, lines[name], seals[name]) for name in amending]
    wrong = [*_otherwise(signed, keys), *_wrong(own, old, seals, amending), *_unlogged(found)]
    in_order = sorted(found, key=lambda one: (one.event_count, one.leaf is None, one.leaf or 0, one.line))
    return LaterSeals(tuple(in_order), tuple(wrong), len(lines) - len(seals))


def late_facts(records: Sequence[RawRecord], keys: Sequence[TrustedKey], covered: int) -> list[dict[str, Any]]:
    """Of a job's records the facts that its amendments added behind the first `covered`: which these are, and where.

    {index, offset, event_id, type, node_id, outcome}; what is not said is empty.
    """
    prefix = sealed_prefix(records, keys)
    facts = prefix.audit.history.facts[covered : len(prefix.records) - 1]
    return [
        {
            "index": fact.at,
            "offset": fact.offset,
            "event_id": fact.event_id,
            "type": fact.type,
            "node_id": fact.node,
            "outcome": fact.outcome,
        }
        for fact in facts
        if fact.type not in ("", "job_sealed")
    ]


def _by_hash(shown: Sequence[ShownLine]) -> dict[str, ShownLine]:
    """Each line once, with its leaf where one of those who show it prove that."""
    found = dict[str, ShownLine]()
    for one in shown:
        name = line_hash(one.line)
        if name not in found or found[name].leaf is None:
            found[name] = one
    return found


def _reached(own: str, old: Mapping[str, Any], seals: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The lines that amend the kept one, and those that amend these: each by more records of the same tenant's job."""
    reached, at = [own], 0
    bodies = {**seals, own: old}
    while at < len(reached):
        before = bodies[reached[at]]
        reached += [
            name
            for name, seal in seals.items()
            if name not in reached and amends(seal) == reached[at] and _is_longer(seal, before)
        ]
        at += 1
    return reached[1:]


def _is_longer(seal: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    return covers(seal) > covers(before) and seal["tenant"] == before["tenant"]


def _otherwise(lines: Sequence[bytes], keys: Sequence[TrustedKey]) -> Iterator[Wrong]:
    """Seals that are no amendment, and are over other records than the first."""
    known = keyring(keys, SEAL)
    claims = [claim for at, line in enumerate(lines) if (claim := read_claim(at, line, known)) is not None]
    for first, other in equivocal(claims):
        text = f"one line seals {first.event_count} records of the job, another {other.event_count} and amends nothing"
        yield "sealed_otherwise", text


def _wrong(
    own: str, old: Mapping[str, Any], seals: Mapping[str, Mapping[str, Any]], amending: Sequence[str]
) -> Iterator[Wrong]:
    roots = {covers(old): old.get("root")}
    bodies = {**seals, own: old}
    for name in amending:
        seal = bodies[name]
        count = covers(seal)
        if roots.setdefault(count, seal.get("root")) != seal.get("root"):
            yield "sealed_otherwise", f"two lines amend the seal by other records, up to {count}"
        if not _has_grown(bodies[str(amends(seal))], seal):
            yield "seal_consistency", f"the amendment over {count} records proves no growth of what it amends"
    for name, seal in seals.items():
        named = amends(seal)
        if named is None or name in (own, *amending):
            continue
        if named in (own, *amending):
            yield "seal_count", f"a line over {covers(seal)} records amends one that is over no fewer, or another's"
        elif covers(seal) > covers(old):
            yield (
                "amended_unseen",
                f"a line over {covers(seal)} records amends one that is not shown",
            )


def _has_grown(before: Mapping[str, Any], seal: Mapping[str, Any]) -> bool:
    try:
        path = path_in(seal.get("consistency"))
        trees = hash_in(before.get("tree")), hash_in(seal.get("tree"))
    except BadRecordProof:
        return False
    return consistency_holds(covers(before), covers(seal), path, *trees)


def _unlogged(found: Sequence[LaterSeal]) -> Iterator[Wrong]:
    """Those of which nothing shows that they are in the log: neither a proof, nor one in it that amends them."""
    logged, by_name = set[str](), {one.line: one for one in found}
    for one in found:
        name = one.line if one.leaf is not None else ""
        while name in by_name and name not in logged:
            logged.add(name)
            name = by_name[name].amends
    for one in found:
        if one.line not in logged:
            yield "not_included", f"nothing shows that the amendment over {one.event_count} records is in the log"


def _later_seal(name: str, shown: ShownLine, seal: Mapping[str, Any]) -> LaterSeal:
    return LaterSeal(
        line=name,
        amends=str(amends(seal)),
        leaf=shown.leaf,
        event_count=covers(seal),
        root=str(seal.get("root")),
        tree=str(seal.get("tree")),
        sealed_at=str(seal.get("sealed_at")),
        key_id=str(seal.get("key_id")),
    )
