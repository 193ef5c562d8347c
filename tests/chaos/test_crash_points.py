"""An executor is killed at each named point, under a call of each effect class: what the log and the outside then say.

The table of docs/guarantees.md is made by this test: run it with AETHERIS_WRITE_DOCS=1.
"""

import os
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest

from aetheris.protocol.plan import EffectClass
from aetheris.tool_executor.crash import ORDERED, ORDERS, VARIABLE, Point
from tests.outside import Outside, running_outside, until
from tests.system import ENDED, REPOSITORY, System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

GUARANTEES = REPOSITORY / "docs" / "guarantees.md"
BEGIN, END = "<!-- crash-matrix -->", "<!-- /crash-matrix -->"
HEAD = ("killed", "effect class", "the stream from `started` on", "calls", "effects", "ends", "after, s")
POINTS: tuple[Point, ...] = get_args(Point)
CALLED_AGAIN = {("in_call", "pure"), ("in_call", "idempotent"), ("after_call", "pure"), ("after_call", "idempotent")}
NEVER_CALLED = {("after_started", "opaque"), ("before_call", "opaque")}
PARKED = NEVER_CALLED | {("in_call", "opaque"), ("after_call", "opaque")}


@dataclass(frozen=True)
class Row:
    """One cell of the matrix, as it was seen."""

    point: str
    effect_class: str
    stream: tuple[str, ...]
    calls: int
    effects: int
    ends: str
    recovered_s: float

    @property
    def lasting(self) -> tuple[str, ...]:
        """The columns that are the same in every run."""
        return (self.point, self.effect_class, ", ".join(self.stream), str(self.calls), str(self.effects), self.ends)

    @property
    def line(self) -> str:
        return f"| {' | '.join((*self.lasting, f'{self.recovered_s:.1f}'))} |"


@dataclass(frozen=True)
class World:
    system: System
    outside: Outside


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("crash")
    # No lease lapses: what is in doubt is so because its worker is known to have ended, in every run.
    env = {"AETHERIS_TOOLS": "tests.outside_tools", VARIABLE: ORDERED, "AETHERIS_LEASE_TTL_S": "120"}
    with (
        running_outside(folder / "outside") as outside,
        running_system(folder / "data", env | outside.env) as system,
    ):
        yield World(system, outside)


def test_killed_at_every_point_in_every_class(world: World) -> None:
    rows = [seen(world, point, effect_class.value) for point in POINTS for effect_class in EffectClass]
    for row in rows:
        where = (row.point, row.effect_class)
        pure = row.effect_class == "pure"
        assert row.ends == ("parked for a human" if where in PARKED else "completed"), row
        assert row.calls == (0 if where in NEVER_CALLED else 2 if where in CALLED_AGAIN else 1), row
        assert row.effects == (0 if pure or where in NEVER_CALLED else 1), row
    table = "\n".join([f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|", *(row.line for row in rows)])
    if "AETHERIS_WRITE_DOCS" in os.environ:
        write(table)
    documented = [tuple(cell.strip() for cell in line.split("|")[1:-2]) for line in read().splitlines()[2:]]
    assert documented == [row.lasting for row in rows], table


def seen(world: World, point: Point, effect_class: str) -> Row:
    """Kill at one point under one job; return once that is over."""
    system, name = world.system, f"{point}-{effect_class}"
    tool = f"poke_{effect_class}"
    orders = system.data / ORDERS
    before = system.state().parts["executor-0"].incarnation
    in_call = point == "in_call"
    held = world.outside.hold(name) if in_call else None
    if not in_call:
        give(orders, f"{point}:{tool}")
    job = system.submit({"id": "a", "tool": tool, "args": {"tag": name, "hold": name if in_call else ""}})
    if in_call:
        until(lambda: calls(world, name) == 1, 60)
        give(orders, f"{point}:{tool}")
    until(lambda: not orders.exists(), 60)
    killed_s = time.monotonic()
    if held is not None:
        until(lambda: system.state().parts["executor-0"].incarnation > before, 60)
        held.unlink()
    until(lambda: system.job(job).get("status") in ENDED | {"waiting"}, 60)
    recovered_s = time.monotonic() - killed_s
    status = system.job(job)["status"]
    distinct = len({effect["key"] for effect in world.outside.effects(tag=name)})
    effects = distinct if effect_class == "idempotent" else world.outside.count(name)
    ends = "parked for a human" if status == "waiting" else status
    return Row(point, effect_class, stream(system, job), calls(world, name), effects, ends, recovered_s)


def give(orders: Path, order: str) -> None:
    """Whole, or not there."""
    staged = orders.with_suffix(".new")
    staged.write_text(order)
    staged.replace(orders)


def calls(world: World, tag: str) -> int:
    """Everything that reached the outside, reads too."""
    return world.outside.count(tag) + world.outside.reads(tag)


def stream(system: System, job: str) -> tuple[str, ...]:
    """The types of a job's events, without its birth, its plan and its seal."""
    types = [event["type"] for event in system.api.get(f"/jobs/{job}/events").json()]
    return tuple(name.removeprefix("tool_invocation_") for name in types[2:] if name != "job_sealed")


def read() -> str:
    text = GUARANTEES.read_text()
    assert BEGIN in text, "run with AETHERIS_WRITE_DOCS=1"
    return text.partition(BEGIN)[2].partition(END)[0].strip()


def write(table: str) -> None:
    before, _, rest = GUARANTEES.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    GUARANTEES.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")
