"""The workloads (pure)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Name = Literal["W1", "W2", "W3", "W4", "W5", "W6"]


@dataclass(frozen=True)
class Workload:
    """Jobs of some steps each, so many of them at a time.

    W1 many jobs at once; W2 one job at a time; W3 one long job; W4 one job whose steps don't wait for each other;
    W5 as W1 with a tool that returns a while after its effect, and a worker that is killed on the way; W6 as W3, by a
    workflow: a loop in Python in place of a plan of as many nodes.
    """

    name: Name
    jobs: int
    steps: int
    in_flight: int

    @property
    def total_steps(self) -> int:
        """Over all jobs."""
        return self.jobs * self.steps

    @property
    def parallel(self) -> bool:
        """Whether no step waits for another."""
        return self.name == "W4"

    @property
    def in_code(self) -> bool:
        """Whether its steps are calls of a workflow."""
        return self.name == "W6"

    @property
    def slow(self) -> bool:
        """Whether the tool returns a while after its effect."""
        return self.name == "W5"

    @property
    def kill_at(self) -> int | None:
        """After how many effects the worker is killed: with 100 jobs in flight, in the middle of a wave of them."""
        return round(0.37 * self.total_steps) if self.name == "W5" else None

    def plan(self) -> dict[str, Any]:
        """The plan of each of its jobs."""
        if self.in_code:
            return {"nodes": [{"id": "w", "kind": "workflow", "tool": "notes", "args": {"steps": self.steps}}]}
        tool = "note_slowly" if self.slow else "note"
        return parallel(self.steps, tool) if self.parallel else chain(self.steps, tool)


WARM_UP = Workload("W1", jobs=50, steps=10, in_flight=25)


def workload(name: Name, jobs: int | None = None, steps: int | None = None, in_flight: int = 100) -> Workload:
    """A workload with its own numbers where none are given; only W1 and W5 have several jobs in flight."""
    defaults: Mapping[Name, tuple[int, int]] = {
        "W1": (200, 10),
        "W2": (100, 10),
        "W3": (1, 1000),
        "W4": (1, 200),
        "W5": (200, 10),
        "W6": (1, 1000),
    }
    own_jobs, own_steps = defaults[name]
    return Workload(name, jobs or own_jobs, steps or own_steps, in_flight if name in ("W1", "W5") else 1)


def chain(steps: int, tool: str = "note") -> dict[str, Any]:
    """Each step after the one before it."""
    return {"nodes": [_node(index, tool, [f"n{index - 1}"] if index else []) for index in range(steps)]}


def parallel(steps: int, tool: str = "note") -> dict[str, Any]:
    """Steps that depend on nothing."""
    return {"nodes": [_node(index, tool, []) for index in range(steps)]}


def _node(index: int, tool: str, depends_on: list[str]) -> dict[str, Any]:
    """Without arguments: 5,000 of them must fit one plan."""
    return {"id": f"n{index}", "tool": tool, "depends_on": depends_on}
