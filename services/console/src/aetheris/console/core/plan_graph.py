"""A job's plan as a drawing: its steps in layers, each below what it depends on; pure numbers for an SVG."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aetheris.console.core.visible_text import exact
from aetheris.protocol.api import StepView

MOST_DRAWN = 150
"""Steps; of a larger plan the table tells."""
WIDTH, HEIGHT = 190, 54
_ACROSS, _DOWN, _EDGE = 26, 46, 8
_SWEEPS = 4
_LONGEST = 24
"""Characters of a line in a step's shape."""
_CORNER = 14
_WORDS: Mapping[str, str] = {
    "completed": "\u2713 completed",
    "failed": "\u2717 failed",
    "rejected": "\u2717 rejected",
    "cancelled": "\u2298 cancelled",
    "waiting": "\u2026 waiting",
    "running": "\u25b6 running",
    "pending": "\u25cb pending",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnStep:
    """One step at its place; `outline` is the shape of its state, as the points of a polygon."""

    node_id: str
    name: str
    tool: str
    state: str
    says: str
    """The state in a word and a sign, and how many calls its code has planned."""
    left: int
    top: int
    outline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnPlan:
    """All of them, and a path for each dependency: (its `d`, whose it is, of what)."""

    width: int
    height: int
    steps: Sequence[DrawnStep]
    edges: Sequence[tuple[str, str, str]]


def drawn_plan(steps: Sequence[StepView]) -> DrawnPlan | None:
    """The drawing of a plan's own steps; None where there is nothing to see in it, or too much."""
    own = [step for step in steps if step.parent is None]
    if not 1 < len(own) <= MOST_DRAWN:
        return None
    needs = _needs(own)
    layers = _layers(needs)
    calls: dict[str, int] = {}
    for step in steps:
        if step.parent is not None:
            calls[step.parent] = calls.get(step.parent, 0) + 1
    widest = max(len(layer) for layer in layers)
    width = widest * WIDTH + (widest - 1) * _ACROSS + 2 * _EDGE
    places = {
        node_id: (round((width - _across(len(layer))) / 2 + at * (WIDTH + _ACROSS)), _EDGE + deep * (HEIGHT + _DOWN))
        for deep, layer in enumerate(layers)
        for at, node_id in enumerate(layer)
    }
    return DrawnPlan(
        width=width,
        height=2 * _EDGE + len(layers) * HEIGHT + (len(layers) - 1) * _DOWN,
        steps=[_drawn(step, places[step.node_id], calls.get(step.node_id, 0)) for step in own],
        edges=[(_path(places[one], places[to]), one, to) for to, found in needs.items() for one in found],
    )


def _across(count: int) -> int:
    return count * WIDTH + (count - 1) * _ACROSS


def _needs(steps: Iterable[StepView]) -> dict[str, list[str]]:
    own = {step.node_id: step for step in steps}
    return {name: [one for one in dict.fromkeys(step.depends_on) if one in own] for name, step in own.items()}


def _layers(needs: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Each step in the layer below the lowest that it needs; within one, near those it needs and that need it."""
    deep: dict[str, int] = {}
    left = dict(needs)
    while left:
        ready = [name for name, found in left.items() if all(one in deep for one in found)] or [*left]
        for name in ready:
            found = [deep[one] for one in left.pop(name) if one in deep]
            deep[name] = max(found, default=-1) + 1
    layers: list[list[str]] = [[] for _ in range(max(deep.values()) + 1)]
    for name in needs:
        layers[deep[name]].append(name)
    needed_by: dict[str, list[str]] = {name: [] for name in needs}
    for name, found in needs.items():
        for one in found:
            needed_by[one].append(name)
    for sweep in range(_SWEEPS):
        near = needs if sweep % 2 == 0 else needed_by
        for layer in layers if sweep % 2 == 0 else layers[::-1]:
            at = {name: place / max(1, len(row)) for row in layers for place, name in enumerate(row)}
            layer.sort(key=lambda name, at=at, near=near: _middle(at, near[name], at[name]))
    return layers


def _middle(at: Mapping[str, float], names: Sequence[str], else_at: float) -> float:
    return sum(at[name] for name in names) / len(names) if names else else_at


def _drawn(step: StepView, place: tuple[int, int], calls: int) -> DrawnStep:
    says = _WORDS.get(step.state, step.state)
    return DrawnStep(
        node_id=step.node_id,
        name=_short(step.node_id),
        tool=_short(step.tool),
        state=step.state if step.state in _WORDS else "pending",
        says=f"{says}, {calls} calls" if calls else says,
        left=place[0],
        top=place[1],
        outline=_outline(step.state),
    )


def _short(text: str) -> str:
    shown = exact(text.replace("\n", " "))
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "\u2026"


def _outline(state: str) -> str:
    """Ended well: a box. Ended otherwise: its corners are cut. Waits: it is pointed at both sides. Else: slanted."""
    cut = _CORNER
    match state:
        case "completed":
            points = [(0, 0), (WIDTH, 0), (WIDTH, HEIGHT), (0, HEIGHT)]
        case "failed" | "rejected" | "cancelled":
            points = [(cut, 0), (WIDTH - cut, 0), (WIDTH, cut), (WIDTH, HEIGHT - cut)]
            points += [(WIDTH - cut, HEIGHT), (cut, HEIGHT), (0, HEIGHT - cut), (0, cut)]
        case "waiting":
            points = [(cut, 0), (WIDTH - cut, 0), (WIDTH, HEIGHT // 2)]
            points += [(WIDTH - cut, HEIGHT), (cut, HEIGHT), (0, HEIGHT // 2)]
        case _:
            points = [(cut // 2, 0), (WIDTH, 0), (WIDTH - cut // 2, HEIGHT), (0, HEIGHT)]
    return " ".join(f"{x},{y}" for x, y in points)


def _path(one: tuple[int, int], to: tuple[int, int]) -> str:
    x1, y1, x2, y2 = one[0] + WIDTH // 2, one[1] + HEIGHT, to[0] + WIDTH // 2, to[1] - 5
    bend = max(18, (y2 - y1) // 2)
    return f"M{x1} {y1}C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2}"
