"""Every line of the log of seals against every stream, as both lie in Kafka (docs/evidence.md)."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aetheris.cli.fromlog import SEALS, archived, everything, gone, raw
from aetheris.cli.reachable_log import reachable
from aetheris.proofs import RawRecord
from aetheris.proofs.chain import ChainHead
from aetheris.proofs.claims import Claim, equivocal, line_leaf, read_claim
from aetheris.proofs.log_lines import read_line
from aetheris.proofs.merkle import Tree
from aetheris.proofs.notes import Checkpoint
from aetheris.proofs.records import event_type
from aetheris.proofs.trust import SEAL, TrustedKey, keyring
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.log.interface import Log


@dataclass
class Books:
    """What both topics say. `claims`: job → event_count → root → leaf.

    What no key of `keys` signed is counted, and says nothing: `unsigned` lines, and `unsigned_seals` in streams.
    """

    keys: Mapping[str, TrustedKey]
    tree: Tree = field(default_factory=Tree)
    claims: dict[str, dict[int, dict[str, int]]] = field(
        default_factory=lambda: defaultdict[str, dict[int, dict[str, int]]](lambda: defaultdict(dict))
    )
    logged: set[bytes] = field(default_factory=set[bytes])
    unlogged: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    sealed: dict[str, list[Claim]] = field(default_factory=lambda: defaultdict[str, list[Claim]](list))
    """Of each job its first line, and those that seal other records without amending it."""
    gaps: list[int] = field(default_factory=list[int])
    unsigned: int = 0
    unsigned_seals: int = 0
    heads: dict[str, ChainHead] = field(default_factory=dict[str, ChainHead])

    def take_seal(self, record: Record, *, claims: bool) -> None:
        """The next line of the log of seals; one that is newer than the streams that will be read claims nothing."""
        if record.offset != len(self.tree):
            self.gaps.append(record.offset)
        leaf = line_leaf(record.value)
        self.tree.append(leaf)
        self.logged.add(leaf)
        claim = read_claim(record.offset, record.value, self.keys)
        if claim is None:
            self.unsigned += read_line(record.value, self.keys) is None
            return
        if equivocal([*self.sealed[claim.job_id][:1], claim]) or not self.sealed[claim.job_id]:
            self.sealed[claim.job_id].append(claim)
        if claims:
            self.claims[claim.job_id][claim.event_count][claim.root] = record.offset

    def take_event(self, record: RawRecord) -> None:
        """The next record of a job: what it bears out of the claims is struck off."""
        job_id = (record.key or b"").decode(errors="replace")
        if _is_seal(record) and line_leaf(record.value) not in self.logged:
            if read_claim(record.offset, record.value, self.keys) is None:
                self.unsigned_seals += 1
            else:
                self.unlogged.append((job_id, record.offset))
        if job_id not in self.claims:
            return
        head = self.heads.setdefault(job_id, ChainHead())
        root = head.update(record).hex()
        self.claims[job_id].get(head.count, {}).pop(root, None)

    def violations(self, before: Checkpoint | None) -> Iterator[tuple[str, str]]:
        """What one of them says and the other doesn't bear out."""
        for offset in self.gaps:
            yield "leaf_missing", f"the log of seals has nothing before offset {offset}"
        if before is not None and before.size > len(self.tree):
            yield "leaf_missing", f"the checkpoint has {before.size} leaves, the log of seals {len(self.tree)}"
        elif before is not None and self.tree.root(before.size) != before.root:
            yield "not_consistent", f"the first {before.size} leaves are not those of the checkpoint"
        for job_id, counts in self.claims.items():
            for leaf in sorted(leaf for roots in counts.values() for leaf in roots.values()):
                rule = "job_replaced" if job_id in self.heads else "job_dropped"
                yield rule, f"job {job_id} is not what leaf {leaf} sealed"
        for job_id, lines in self.sealed.items():
            for first, other in equivocal(lines):
                text = f"leaves {first.leaf} and {other.leaf} seal other records of job {job_id}, and amend nothing"
                yield "sealed_otherwise", text
        for job_id, offset in self.unlogged:
            yield "seal_not_logged", f"the seal of job {job_id} at offset {offset} is not in the log of seals"


async def audit(bootstrap: str, keys: Sequence[TrustedKey], before: Checkpoint | None, data: Path) -> dict[str, Any]:
    """Read both topics from their first records to where they end now; what these keys signed of them must be so.

    What the streams have let go of is read from the archive, in the store of the folder `data`.

    Raises:
        CommandError: no broker answers, or the archive is no good.
    """
    books = Books(keyring(keys, SEAL))
    async with reachable(bootstrap, within_s=None) as log:
        # What is sealed by now lies in the streams as they end after that; their own seals were logged before.
        sealed = (await log.end_offsets([SEALS]))[SEALS]
        ends = await _ends(log)
        async for record in everything(log, *SEALS):
            books.take_seal(record, claims=record.offset < sealed)
        for number, end in ends.items():
            async for _, records in gone(log, number, await archived(log, number), data):
                for record in records:
                    books.take_event(record)
            async for record in everything(log, Topic.JOBS_EVENTS, number, end):
                books.take_event(raw(record))
    found = [{"rule": rule, "message": message} for rule, message in books.violations(before)]
    return {
        "ok": not found,
        "leaves": len(books.tree),
        "root": books.tree.root().hex(),
        "jobs": len(books.claims),
        "unsigned": books.unsigned,
        "unsigned_seals": books.unsigned_seals,
        "violations": found,
    }


async def _ends(log: Log) -> dict[int, int]:
    places = [(Topic.JOBS_EVENTS, number) for number in range(await log.partitions(Topic.JOBS_EVENTS))]
    return {number: end for (_, number), end in (await log.end_offsets(places)).items()}


def _is_seal(record: RawRecord) -> bool:
    return event_type(record.header("ce_type")) == b"job_sealed"
