"""A job's steps as rows of a table: what a workflow's code has planned stands below it; of many, those that matter."""

from collections.abc import Sequence
from dataclasses import dataclass

from aetheris.protocol.api import StepView

MOST_SHOWN = 100
"""Rows from the first on; those behind them that are open, or have failed, come on top, as many again at most."""
ON_A_PAGE = 500
_MATTER = frozenset({"running", "waiting", "failed", "rejected"})


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step, and how many stand above it; `place` from 1, in the order of the whole table."""

    place: int
    depth: int
    step: StepView


def step_rows(steps: Sequence[StepView]) -> list[StepRow]:
    """All of them, each behind the one whose code has planned it."""
    names = {step.node_id for step in steps}
    below: dict[str | None, list[StepView]] = {}
    for step in steps:
        above = step.parent if step.parent in names and step.parent != step.node_id else None
        below.setdefault(above, []).append(step)
    found: list[StepRow] = []
    left = [(0, step) for step in reversed(below.get(None, []))]
    while left:
        depth, step = left.pop()
        found.append(StepRow(len(found) + 1, depth, step))
        left += [(depth + 1, one) for one in reversed(below.get(step.node_id, []))]
    return found


def shown_rows(rows: Sequence[StepRow]) -> list[StepRow]:
    """The first ones, and those that matter of the rest."""
    first, rest = rows[:MOST_SHOWN], rows[MOST_SHOWN:]
    return [*first, *[one for one in rest if one.step.state in _MATTER][:MOST_SHOWN]]
