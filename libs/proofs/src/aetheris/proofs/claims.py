"""What the log of seals says of a job, held against the job's records: a stream that lost its end is found here."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aetheris.proofs import seals
from aetheris.proofs.amendments import amends
from aetheris.proofs.chain import ChainHead
from aetheris.proofs.merkle import leaf_hash
from aetheris.proofs.records import RawRecord, Violation, body_of, event_type
from aetheris.proofs.trust import TrustedKey

SEAL_WITHIN_S = 5.0
"""A seal is in the log of seals before it is in its job's stream: this long it may be waited for there."""
AGAIN_S = 0.25
"""Between two looks."""

_SEALED = b"job_sealed"
_SAID = ("job_id", "event_count", "root", "key_id", "sealed_at")


@dataclass(frozen=True, slots=True)
class Claim:
    """A signed line of the log of seals: the first `event_count` records of the job have this root (hex)."""

    leaf: int
    job_id: str
    event_count: int
    root: str
    amends: bool = False
    """Whether it amends one before it."""


def log_entry(line: bytes) -> bytes:
    """What the log of seals has of a line: its SHA-256, whatever it is, so that the log can be shown to anybody."""
    return hashlib.sha256(line).digest()


def line_leaf(line: bytes) -> bytes:
    """The leaf's hash of a line; its index is the line's offset."""
    return leaf_hash(log_entry(line))


def named_job(line: bytes) -> str:
    """The job that a line names, whoever wrote it; empty where it names none."""
    body = body_of(line)
    name = body.get("job_id") if body is not None else None
    return name if isinstance(name, str) else ""


def read_claim(leaf: int, line: bytes, keys: Mapping[str, TrustedKey]) -> Claim | None:
    """What a line says, if a trusted key signed it in its time; None for any other, which says nothing."""
    body = body_of(line) or {}
    job_id, count, root, key_id, sealed_at = (body.get(name) for name in _SAID)
    if not (isinstance(job_id, str) and isinstance(root, str) and type(count) is int and isinstance(key_id, str)):
        return None
    key = keys.get(key_id)
    if key is None or not isinstance(sealed_at, str) or key.refusal(sealed_at) is not None:
        return None
    if not seals.verify(body, key.public_key):
        return None
    return Claim(leaf, job_id, count, root, amends=amends(body) is not None)


def against_claims(records: Sequence[RawRecord], claims: Sequence[Claim]) -> Iterator[Violation]:
    """Every claim about a job must be borne out by the beginning of its records, and a seal be among them.

    `claims` are those of this job that were logged before its records were read.
    """
    head = ChainHead()
    roots = [head.update(record).hex() for record in records]
    for claim in claims:
        text = f"leaf {claim.leaf} of the log of seals seals {claim.event_count} records"
        if not records:
            yield _at_the_end(records, "job_dropped", f"{text}, and there are none")
        elif claim.event_count > len(records):
            yield _at_the_end(records, "records_missing", f"{text}, and there are {len(records)}")
        elif claim.event_count < 1 or roots[claim.event_count - 1] != claim.root:
            yield _at_the_end(records, "other_than_sealed", f"{text} with another root")
    for first, other in equivocal(claims):
        message = f"leaves {first.leaf} and {other.leaf} of the log of seals seal other records, and amend nothing"
        yield _at_the_end(records, "sealed_otherwise", message)
    if lacks_seal(records, claims):
        message = f"leaf {_newest(claims).leaf} of the log of seals seals the job, and the stream has no such seal"
        yield _at_the_end(records, "records_missing", message)


def equivocal(claims: Sequence[Claim]) -> list[tuple[Claim, Claim]]:
    """Of one job's: the first, and each that seals other records than it does, and says of none that it amends it.

    The same twice is one seal: who seals may have died before he knew that the line was taken.
    """
    sealing = [claim for claim in claims if not claim.amends]
    first = [(one.event_count, one.root) for one in sealing[:1]]
    return [(sealing[0], one) for one in sealing[1:] if (one.event_count, one.root) not in first]


def lacks_seal(records: Sequence[RawRecord], claims: Sequence[Claim]) -> bool:
    """Is all there that was sealed, but not the seal, or what amends it? It is logged first: that is lawful briefly."""
    if not records or not claims or any(claim.event_count > len(records) for claim in claims):
        return False
    newest = _newest(claims)
    lines = (body_of(one.value) or {} for one in reversed(records) if event_type(one.header("ce_type")) == _SEALED)
    return not any((line.get("event_count"), line.get("root")) == (newest.event_count, newest.root) for line in lines)


def _newest(claims: Sequence[Claim]) -> Claim:
    """What covers most."""
    return max(claims, key=lambda claim: claim.event_count)


def _at_the_end(records: Sequence[RawRecord], rule: str, message: str) -> Violation:
    """Of the stream as a whole: it names the last record that there is."""
    if not records:
        return Violation(0, rule, "", -1, message)
    last = records[-1]
    return Violation(len(records) - 1, rule, last.header("ce_id").decode(errors="replace"), last.offset, message)
