"""What is said to be undone was undone, in reverse order of commitment (docs/compensation.md)."""

from collections.abc import Iterator
from itertools import pairwise
from typing import cast

from aetheris.proofs.phases import Settlement
from aetheris.proofs.records import Fact, Violation, violation
from aetheris.proofs.validity import Validity

COMPENSATED = "compensated"


def compensation_violations(validity: Validity) -> Iterator[Violation]:
    """Judge every compensation of a history against what its invocations say."""
    yield from _nodes(validity)
    yield from _steps(validity)
    yield from _order(validity)
    yield from _end(validity)


def succeeded(validity: Validity, node: str, at: int) -> Settlement | None:
    """The success that a node had settled as before a place in the log."""
    for key in validity.keys_of_node(node):
        settled = validity.settlement(key, at)
        if settled is not None and settled.succeeded:
            return settled
    return None


def _undone_by(validity: Validity, at: int) -> dict[str, str]:
    """Node → the node that had undone it before a place in the log."""
    plans = validity.history.plans
    revision = plans.in_force(at)
    undoing = plans.compensations(revision)
    return {plans.compensates(undo, revision): undo for undo in undoing if _is_whole(succeeded(validity, undo, at))}


def _has_undone(validity: Validity, undo: str, node: str, at: int) -> bool:
    plans = validity.history.plans
    names_it = bool(node) and plans.compensates(undo, plans.in_force(at)) == node
    return names_it and _is_whole(succeeded(validity, undo, at))


def _is_whole(settled: Settlement | None) -> bool:
    """What took effect in part has not undone its node."""
    return settled is not None and settled.fact.outcome == "success"


def _nodes(validity: Validity) -> Iterator[Violation]:
    body: dict[str, str] = {}
    for fact in validity.history.nodes_finished:
        if fact.text("result_type") != COMPENSATED:
            continue
        first = body.setdefault(fact.node, fact.event_id)
        if fact.event_id != first:
            yield violation("node_finished_twice", fact, f"node {fact.node} was compensated by event {first}")
        elif not _has_undone(validity, f"{fact.node}.undo", fact.node, fact.at):  # no other may (`is_declared`)
            yield violation("unfounded_compensation", fact, f"nothing has undone node {fact.node} before it")


def _steps(validity: Validity) -> Iterator[Violation]:
    for fact in validity.history.steps_compensated:
        undone = fact.text("compensates")
        if not _has_undone(validity, fact.node, undone, fact.at):
            yield violation("unfounded_compensation", fact, f"node {fact.node} has not undone node {undone} before it")


def _order(validity: Validity) -> Iterator[Violation]:
    for (_, earlier), (start, later) in pairwise(_compensating(validity)):
        if later >= earlier:
            yield violation("compensation_order", start, f"node {start.node} undoes what was committed later")


def _compensating(validity: Validity) -> list[tuple[Fact, int]]:
    """The first valid start of each compensation, with the place where what it undoes was committed."""
    first: dict[str, tuple[Fact, str]] = {}
    for start in validity.history.starts:
        undone = validity.planned(start).entry.get("compensates")
        if undone and isinstance(undone, str) and validity.is_valid(start):
            first.setdefault(start.node, (start, undone))
    found: list[tuple[Fact, int]] = []
    for start, undone in first.values():
        committed = succeeded(validity, undone, start.at)
        if committed is not None:
            found.append((start, committed.fact.at))
    return found


def _end(validity: Validity) -> Iterator[Violation]:
    """The end of a job names what was undone, and nothing else."""
    end = validity.history.end
    if end is None:
        return
    named = end.body.get("compensated") or []
    undone = set(_undone_by(validity, end.at))
    if not isinstance(named, list) or set(map(str, cast("list[object]", named))) != undone:
        yield violation("compensated_differs", end, "what it says was undone is not what the invocations say")
