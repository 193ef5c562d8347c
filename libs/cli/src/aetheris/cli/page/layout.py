"""Where the steps of a dependency graph are drawn: columns by their longest way from a beginning; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BOX_WIDTH, BOX_HEIGHT = 190, 46
GAP_X, GAP_Y = 70, 18
MARGIN = 12

Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Box:
    """A step, at its upper left corner; pixels."""

    node: Node
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Arrow:
    """A dependency, as the path of a curve."""

    path: str
    carries: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes and arrows on a plane of `width` × `height` pixels."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def layout(nodes: Sequence[Node], edges: Sequence[Mapping[str, Any]]) -> Drawing:
    """A drawing of an acyclic graph; `nodes` as a trace has them, in any order."""
    before: dict[str, list[str]] = {node["node_id"]: [] for node in nodes}
    for edge in edges:
        if edge["from"] in before and edge["to"] in before:
            before[edge["to"]].append(edge["from"])
    columns = _columns(before)
    places = _places(columns, before)
    boxes = tuple(Box(node, *places[node["node_id"]]) for node in nodes)
    arrows = tuple(
        Arrow(_curve(places[edge["from"]], places[edge["to"]]), edge["carries"])
        for edge in edges
        if edge["from"] in places and edge["to"] in places
    )
    tallest = max((len(column) for column in columns), default=0)
    width = 2 * MARGIN + len(columns) * (BOX_WIDTH + GAP_X) - GAP_X
    return Drawing(width, 2 * MARGIN + tallest * (BOX_HEIGHT + GAP_Y) - GAP_Y, boxes, arrows)


def _columns(before: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Node ids by their longest way from a beginning."""
    depth: dict[str, int] = {}
    waiting = list(before)
    while waiting:
        known = [name for name in waiting if all(one in depth for one in before[name])]
        for name in known:
            depth[name] = max((depth[one] + 1 for one in before[name]), default=0)
        if not known:
            break
        waiting = [name for name in waiting if name not in depth]
    columns: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name, column in depth.items():
        columns[column].append(name)
    return columns


def _places(columns: Sequence[Sequence[str]], before: Mapping[str, Sequence[str]]) -> dict[str, tuple[int, int]]:
    """Each node near the middle of those before it, so that fewer arrows cross."""
    rows: dict[str, int] = {}
    places: dict[str, tuple[int, int]] = {}
    for column, names in enumerate(columns):
        ordered = sorted(names, key=lambda name: _middle([rows[one] for one in before[name] if one in rows]))
        for row, name in enumerate(ordered):
            rows[name] = row
            x, y = MARGIN + column * (BOX_WIDTH + GAP_X), MARGIN + row * (BOX_HEIGHT + GAP_Y)
            places[name] = (x, y)
    return places


def _middle(rows: Sequence[int]) -> float:
    return sum(rows) / len(rows) if rows else 0.0


def _curve(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = start[0] + BOX_WIDTH, start[1] + BOX_HEIGHT // 2
    x2, y2 = end[0] - 6, end[1] + BOX_HEIGHT // 2
    bend = (x1 + x2) // 2
    return f"M{x1},{y1} C{bend},{y1} {bend},{y2} {x2},{y2}"
