"""What comes behind a job's first seal and counts all the same: late facts that their writers prove (docs/evidence.md).

A later seal that amends the one before covers them. All else there is no part of the job, whoever wrote it.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aetheris.proofs.authorship import Authorship
from aetheris.proofs.chain import EventChain
from aetheris.proofs.history import SUCCESSES
from aetheris.proofs.records import Body, Fact, Violation
from aetheris.proofs.words import is_proved
from aetheris.proofs.writers import OWN_WORD

ENDED = "tool_invocation_finished"
_SIGNED = frozenset({"effect_confirmed", "confirmation_failed", "violation_found"})
"""Who may write them signs them; in a job whose records nobody signs, anybody could have."""


@dataclass(frozen=True, slots=True)
class AmendedSeal:
    """What a job was first sealed as, where its seal was amended since; and what came to light by that."""

    event_count: int
    root: str
    tree: str
    ok: bool
    """Whether what was sealed first holds by itself."""
    amendments: int
    shows: tuple[Violation, ...]
    """What breaks a rule only with what came later."""

    def to_json(self) -> dict[str, Any]:
        """{event_count, root, tree, ok, amendments, shows}."""
        return {**self.stated(), "ok": self.ok, "shows": [one.to_json() for one in self.shows]}

    def stated(self) -> dict[str, Any]:
        """The same as a statement has it, without wording: what each reader finds by itself."""
        shows = [{"rule": one.rule, "event_id": one.event_id, "offset": one.offset} for one in self.shows]
        return {
            "event_count": self.event_count,
            "root": self.root,
            "tree": self.tree,
            "amendments": self.amendments,
            "shows": sorted(shows, key=lambda one: (one["offset"], one["rule"], one["event_id"])),
        }


@dataclass(slots=True)
class LateFacts:
    """Which of the records from `begin` on count: those behind what was sealed first. Asked in log order.

    `seals`: places of the seals that amend each other, the first with them.
    """

    begin: int
    seals: frozenset[int]
    left_out: set[int] = field(default_factory=set[int])
    _ended: set[tuple[str, object]] = field(default_factory=set[tuple[str, object]])

    def take(self, fact: Fact, authors: Authorship) -> bool:
        """Whether the next record counts; `authors` have judged it."""
        if fact.at < self.begin or fact.at in self.seals or self._counts(fact, authors):
            return True
        self.left_out.add(fact.at)
        return False

    def _counts(self, fact: Fact, authors: Authorship) -> bool:
        if is_late_fact(fact, authors):
            if fact.type == ENDED and fact.outcome in SUCCESSES:
                self._ended.add((fact.key, fact.text("output_hash")))
            return True
        return fact.type == "command_committed" and (fact.key, fact.text("output_hash")) in self._ended


def is_late_fact(fact: Fact, authors: Authorship) -> bool:
    """Whether a record says what may come to light late, and its writer proves it: by the try's word, or signed."""
    if fact.type == ENDED:
        by_word = fact.body.get("via") in OWN_WORD
        return is_proved(fact.type, fact.body) and (by_word or authors.installation is not None)
    return fact.type in _SIGNED and authors.installation is not None


def line_hash(line: bytes) -> str:
    """By what an amendment names the seal that it amends: the SHA-256 of its line, hex."""
    return hashlib.sha256(line).hexdigest()


def amends(seal: Body) -> str | None:
    """The line that a seal amends; None of one that amends none."""
    named = seal.get("amends")
    return named if isinstance(named, str) or named is None else ""


def standing(seals: Sequence[Fact], lines: Mapping[int, str]) -> Iterator[Fact]:
    """The first seal, and each that amends the one before by a longer prefix, that one in it; `lines`: their hashes."""
    last: Fact | None = None
    for seal in seals:
        count = seal.body.get("event_count")
        longer = last is None or (type(count) is int and count > last.at)
        if longer and amends(seal.body) == (None if last is None else lines.get(last.at)):
            last = seal
            yield seal


def grown(chain: EventChain, seal: Fact, before: int) -> bool:
    """Whether an amendment's proof leads from the tree over the first `before` records to its own."""
    count, said = seal.body.get("event_count"), seal.body.get("consistency")
    return type(count) is int and said == [step.hex() for step in chain.consistency(before, count)]
