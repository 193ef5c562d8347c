"""By which policies a job's decisions went, as they name them themselves (docs/policy.md, "Activate")."""

from collections.abc import Iterator
from itertools import accumulate

from aetheris.proofs.history import History
from aetheris.proofs.records import Fact, Violation, violation


def activation_violations(history: History) -> Iterator[Violation]:
    """An activation is of one policy; number 0 is the configured file, which may change."""
    first: dict[int, Fact] = {}
    for fact, number in _numbered(history):
        stands = first.setdefault(number, fact)
        if number > 0 and fact.text("policy_hash") != stands.text("policy_hash"):
            said = f"activation {number} is of another policy in event {stands.event_id}"
            yield violation("activation_differs", fact, said)


def activation_notes(history: History) -> Iterator[Violation]:
    """What a ledger that has been replaced had decided comes late, and counts: so that is no fault of the job's."""
    numbered = list(_numbered(history))
    highest = accumulate((number for _, number in numbered), max)
    for most, (fact, number) in zip(highest, numbered, strict=True):
        if number < most:
            yield violation("activation_decreases", fact, f"by activation {number}, behind a decision by {most}")


def _numbered(history: History) -> Iterator[tuple[Fact, int]]:
    for fact in history.by_policy:
        number = fact.body.get("activation")
        if isinstance(number, int) and not isinstance(number, bool):
            yield fact, number
