"""Whether humans decided what they were asked, and were those who may (docs/approvals.md)."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import cast

from aetheris.proofs.history import History
from aetheris.proofs.records import Fact, Violation, violation

BOUND_TO = ("node_id", "args_hash", "tool_version", "rule")
"""What a decision repeats of its request: it holds for exactly that."""


def approval_violations(history: History) -> Iterator[Violation]:
    """The first decision of each key, held against its request; later ones count nowhere."""
    for key, decided in history.decisions.items():
        requested = history.requests.get(key)
        if requested is None or requested.at > decided.at:
            yield violation("unasked_decision", decided, f"key {key} was decided, and nobody had asked")
        else:
            yield from _bound(key, requested, decided)
            yield from _entitled(key, requested, decided, history.created)


def _bound(key: str, requested: Fact, decided: Fact) -> Iterator[Violation]:
    for name in BOUND_TO:
        if requested.body.get(name) != decided.body.get(name):
            yield violation("decision_differs", decided, f"the decision on key {key} is about another {name}")


def _entitled(key: str, requested: Fact, decided: Fact, created: Fact | None) -> Iterator[Violation]:
    who = decided.text("approver")
    if created is not None and who == created.text("submitted_by") and requested.body.get("self_approval") is not True:
        yield violation("self_approval", decided, f"who submitted the job decided on key {key}")
    named = requested.body.get("approvers")
    patterns = cast("list[object]", named) if isinstance(named, list) else None
    if patterns is not None and not any(fnmatchcase(who, str(pattern)) for pattern in patterns):
        yield violation("not_an_approver", decided, f"key {key} was decided by somebody whom the policy doesn't name")
