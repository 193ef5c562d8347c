"""A service is killed at each named point, under a call of each effect class: what log and external system then hold.

The table of docs/guarantees.md is made by this test: run it with AETHERIS_WRITE_DOCS=1.
"""

import os
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

from aetheris.protocol.plan.graph import EffectClass
from aetheris.runtime.process.crash import ORDERED, VARIABLE, ExecutorPoint
from tests.testkit.external_server import until
from tests.testkit.policies import ALLOW_REST, ruled_by
from tests.testkit.rig import Rig, running_rig
from tests.testkit.system import ENDED, REPOSITORY, System

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]

GUARANTEES = REPOSITORY / "docs" / "guarantees.md"
BEGIN, END = "<!-- crash-matrix -->", "<!-- /crash-matrix -->"
HEAD = ("killed", "effect class", "the stream", "calls", "effects", "ends", "after, s")
POINTS: tuple[ExecutorPoint, ...] = tuple(point for point in get_args(ExecutorPoint) if point != "after_compensation")
"""Those that every call reaches."""
CALLED_AGAIN = {("in_call", "pure"), ("in_call", "idempotent"), ("after_call", "pure"), ("after_call", "idempotent")}
NEVER_CALLED = {("after_started", "opaque"), ("before_call", "opaque"), ("between_nodes", "opaque")}
POLICY = f"""
[[rules]]
name = "ask"
tools = ["poke_irreversible"]
effect = "approval"
self_approval = true
{ALLOW_REST}"""
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


@pytest.fixture
def rig(tmp_path: Path) -> Generator[Rig]:
    # No lease lapses: what is in doubt is so because its worker is known to have ended, in every run.
    env = {VARIABLE: ORDERED, "AETHERIS_LEASE_TTL_S": "120", **ruled_by(tmp_path, POLICY)}
    with running_rig(tmp_path, env) as rig:
        yield rig


def test_killed_at_every_point_in_every_class(rig: Rig) -> None:
    rows = [seen(rig, point, effect_class.value) for point in POINTS for effect_class in EffectClass]
    for row in rows:
        where = (row.point, row.effect_class)
        pure = row.effect_class == "pure"
        assert row.ends == ("parked for a human" if where in PARKED else "completed"), row
        assert row.calls == (0 if where in NEVER_CALLED else 2 if where in CALLED_AGAIN else 1), row
        assert row.effects == (0 if pure or where in NEVER_CALLED else 1), row
    wired = [on_the_wire(rig, effect_class) for effect_class in WIRED]
    for row in wired:
        again = row.effect_class == "idempotent"
        assert row.ends == ("parked for a human" if row.effect_class == "opaque" else "completed"), row
        assert (row.calls, row.effects) == (1 + again, 1), row
    rows += wired
    further = [met(rig, meeting) for meeting in MEETINGS]
    for row, meeting in zip(further, MEETINGS, strict=True):
        again = meeting.order == "after_compensation:poke_idempotent"
        assert (row.calls, row.effects) == (1 + again, 1), row
    rows += further
    table = "\n".join([f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|", *(row.line for row in rows)])
    if "AETHERIS_WRITE_DOCS" in os.environ:
        write(table)
    documented = [tuple(cell.strip() for cell in line.split("|")[1:-2]) for line in read().splitlines()[2:]]
    assert documented == [row.lasting for row in rows], table


def seen(rig: Rig, point: ExecutorPoint, effect_class: str) -> Row:
    """Kill at one point under one job; return once that is over."""
    system, name = rig.system, f"{point}-{effect_class}"
    tool = f"poke_{effect_class}"
    before = system.state().parts["executor-0"].incarnation
    in_call = point == "in_call"
    held = rig.external.hold(name) if in_call else None
    if not in_call:
        system.die_at(f"{point}:{tool}")
    step = {"id": "a", "tool": tool, "args": {"tag": name, "hold": name if in_call else ""}}
    first = {"id": "first", "tool": "poke_pure", "args": {"tag": f"{name}-first"}}
    in_run = point == "between_nodes"
    job = system.submit(first, step | {"depends_on": ["first"]}) if in_run else system.submit(step)
    if in_call:
        until(lambda: calls(rig, name) == 1, 60)
        system.die_at(f"{point}:{tool}")
    until(system.has_died, 60)
    killed_s = time.monotonic()
    if held is not None:
        until(lambda: system.state().parts["executor-0"].incarnation > before, 60)
        held.unlink()
    until(lambda: system.job(job).get("status") in ENDED | {"waiting"}, 60)
    return row(rig, job, name, point, effect_class, time.monotonic() - killed_s)


WIRED = {
    "idempotent": ("poke_idempotent", "tool_invocation_started", 2),
    "probeable": ("poke_unstated", "invocation_probed", 1),
    "opaque": ("poke_opaque", "invocation_parked", 1),
}
"""Effect class → the tool that is called, and the event (which one of them) after which the request arrives."""


def on_the_wire(rig: Rig, effect_class: str) -> Row:
    """Kill while the request is on its way; it arrives when the ledger has acted on its absence."""
    system, name = rig.system, f"on the wire {effect_class}"
    tool, then, count = WIRED[effect_class]
    held = rig.external.hold_before(name)
    job = system.submit({"id": "a", "tool": tool, "args": {"tag": name, "hold": name}})
    rig.external.wait_arrived(name, 60)
    system.die_at(f"in_call:{tool}")
    until(system.has_died, 60)
    killed_s = time.monotonic()
    until(lambda: stream(system, job, full=True).count(then) >= count, 60)
    held.unlink()
    until(lambda: system.job(job).get("status") in ENDED | {"waiting"}, 60)
    rig.external.wait_for(count if effect_class == "idempotent" else 1, name)
    return row(rig, job, name, "on the wire", effect_class, time.monotonic() - killed_s)


def row(rig: Rig, job: str, name: str, point: str, effect_class: str, recovered_s: float) -> Row:  # noqa: PLR0917 - a row's cells
    """What is there once it is over."""
    system = rig.system
    status = system.job(job)["status"]
    distinct = len({effect["key"] for effect in rig.external.effects(tag=name)})
    effects = distinct if effect_class == "idempotent" else rig.external.count(name)
    ends = "parked for a human" if status == "waiting" else status
    return Row(point, effect_class, stream(system, job), calls(rig, name), effects, ends, recovered_s)


@dataclass(frozen=True)
class Meeting:
    """A point that only some jobs meet: the order to die, the job, what it is told before, and how it ends."""

    name: str
    order: str
    effect_class: str
    nodes: tuple[dict[str, Any], ...]
    ends: str = "completed"
    until: Literal["approval", "signal"] | None = None

    @property
    def tag(self) -> str:
        return f"{self.name} {self.effect_class}"


def approved(name: str, order: str) -> Meeting:
    node = {"id": "a", "tool": "poke_irreversible", "args": {"tag": f"{name} probeable"}}
    return Meeting(name, order, "probeable", (node,), until="approval")


def waited() -> Meeting:
    wait = {"id": "w", "kind": "wait", "wait": {"key": "go"}}
    node = {"id": "a", "tool": "poke_probeable", "args": {"tag": "after_wait probeable"}, "depends_on": ["w"]}
    return Meeting("after_wait", "after_wait", "probeable", (wait, node), until="signal")


def undone(name: str, order: str, effect_class: str, ends: str = "failed") -> Meeting:
    """A job that fails behind a step that is undone: what is counted are the calls of the undoing."""
    undo = {"tool": f"poke_{effect_class}", "args": {"tag": f"{name} {effect_class}"}}
    done = {"id": "a", "tool": "patient_idempotent", "args": {"tag": f"{name} first"}, "compensate_with": undo}
    return Meeting(name, order, effect_class, (done, {"id": "b", "tool": "poke_refused", "depends_on": ["a"]}), ends)


MEETINGS = (
    approved("after_approval", "after_approval"),
    approved("before_started, approved", "before_started:poke_irreversible"),
    waited(),
    undone("before_plan, of compensations", "before_plan", "probeable"),
    undone("after_compensation", "after_compensation:poke_idempotent", "idempotent"),
    undone("after_compensation", "after_compensation:poke_probeable", "probeable"),
    undone("after_compensation", "after_compensation:poke_opaque", "opaque", "waiting"),
    undone("before_compensated", "before_compensated", "probeable"),
)


def met(rig: Rig, meeting: Meeting) -> Row:
    """Kill where only such a job gets to; return once that is over."""
    system = rig.system
    if meeting.until is None:
        system.die_at(meeting.order)
    job = system.submit(*meeting.nodes)
    if meeting.until is not None:
        system.wait_status(job, "waiting", 60)
        system.die_at(meeting.order)
        go_on(system, job, meeting.until)
    until(system.has_died, 60)
    killed_s = time.monotonic()
    system.wait_status(job, meeting.ends, 60)
    return row(rig, job, meeting.tag, meeting.name, meeting.effect_class, time.monotonic() - killed_s)


def go_on(system: System, job: str, by: Literal["approval", "signal"]) -> None:
    """A human's word; the answer may come without what it caused."""
    if by == "signal":
        system.signal(job, "go")
        return
    request = system.wait_asked(job, 60)["request_id"]
    system.api.post("/ecs/respond", json={"request_id": request, "action": "approve"}, headers=system.approver)


def calls(rig: Rig, tag: str) -> int:
    """Everything that reached the external system, reads too."""
    return rig.external.count(tag) + rig.external.reads(tag)


def stream(system: System, job: str, *, full: bool = False) -> tuple[str, ...]:
    """The types of a job's events, without its birth, its plan and its seal; of one that fails, from its stop on."""
    types = system.types(job)
    if full:
        return tuple(types)
    types = types[types.index("job_stopping") if "job_stopping" in types else 2 :]
    return tuple(name.removeprefix("tool_invocation_") for name in types if name != "job_sealed")


def read() -> str:
    text = GUARANTEES.read_text()
    assert BEGIN in text, "run with AETHERIS_WRITE_DOCS=1"
    return text.partition(BEGIN)[2].partition(END)[0].strip()


def write(table: str) -> None:
    before, _, rest = GUARANTEES.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    GUARANTEES.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")
