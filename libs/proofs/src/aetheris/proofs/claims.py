"""What the log of seals says of a job, held against the job's records: a stream that lost its end is found here."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from aetheris.proofs.chain import ChainHead
from aetheris.proofs.records import Body, RawRecord, Violation, event_type

SEAL_WITHIN_S = 5.0
"""A seal is in the log of seals before it is in its job's stream: this long it may be waited for there."""
AGAIN_S = 0.25
"""Between two looks."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A line of the log of seals: the first `event_count` records of the job have this root (hex)."""

    leaf: int
    job_id: str
    event_count: int
    root: str


def read_claim(leaf: int, value: bytes) -> Claim | None:
    """What a line says; None for what is no seal."""
    try:
        parsed: object = json.loads(value)
    except (ValueError, RecursionError):
        return None
    body: Body = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
    job_id, count, root = body.get("job_id"), body.get("event_count"), body.get("root")
    whole = isinstance(job_id, str) and isinstance(root, str) and type(count) is int
    return Claim(leaf, cast("str", job_id), cast("int", count), cast("str", root)) if whole else None


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
    if lacks_seal(records, claims):
        message = f"leaf {claims[0].leaf} of the log of seals seals the job, and the stream has no seal"
        yield _at_the_end(records, "records_missing", message)


def lacks_seal(records: Sequence[RawRecord], claims: Sequence[Claim]) -> bool:
    """Is all there that was sealed, but not the seal? It is logged first: for a moment that is lawful."""
    if not records or not claims or any(claim.event_count > len(records) for claim in claims):
        return False
    return not any(event_type(record.header("ce_type")) == b"job_sealed" for record in reversed(records))


def _at_the_end(records: Sequence[RawRecord], rule: str, message: str) -> Violation:
    """Of the stream as a whole: it names the last record that there is."""
    if not records:
        return Violation(0, rule, "", -1, message)
    last = records[-1]
    return Violation(len(records) - 1, rule, last.header("ce_id").decode(errors="replace"), last.offset, message)
