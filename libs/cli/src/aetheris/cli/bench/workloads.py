"""The workloads, and what their notes say of the time between steps (pure)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

Name = Literal["W1", "W2", "W3", "W4"]


@dataclass(frozen=True)
class Workload:
    """Jobs of some steps each, so many of them at a time.

    W1 many jobs at once; W2 one job at a time; W3 one long job; W4 one job whose steps don't wait for each other.
    """

    name: Name
    jobs: int
    steps: int
    in_flight: int

    @property
    def total_steps(self) -> int:
        """Over all jobs."""
        return self.jobs * self.steps

    def plan(self) -> dict[str, Any]:
        """The plan of each of its jobs."""
        return parallel(self.steps) if self.name == "W4" else chain(self.steps)


def workload(name: Name, jobs: int | None, steps: int | None, in_flight: int) -> Workload:
    """A workload with its own numbers where none are given; only W1 has several jobs in flight."""
    defaults: Mapping[Name, tuple[int, int]] = {"W1": (200, 10), "W2": (100, 10), "W3": (1, 1000), "W4": (1, 200)}
    own_jobs, own_steps = defaults[name]
    return Workload(name, jobs or own_jobs, steps or own_steps, in_flight if name == "W1" else 1)


def chain(steps: int) -> dict[str, Any]:
    """Each step after the one before it."""
    return {"nodes": [_node(index, [f"n{index - 1}"] if index else []) for index in range(steps)]}


def parallel(steps: int) -> dict[str, Any]:
    """Steps that depend on nothing."""
    return {"nodes": [_node(index, []) for index in range(steps)]}


def gaps_ms(lines: Iterable[str], jobs: Iterable[str]) -> list[float]:
    """Milliseconds between consecutive calls of the tool, within each of these jobs."""
    calls: dict[str, list[int]] = {job: [] for job in jobs}
    for line in lines:
        at, _, external_key = line.partition(" ")
        job = external_key.split(":")[1]
        if job in calls:
            calls[job].append(int(at))
    return [(after - before) / 1e6 for times in calls.values() for before, after in pairwise(sorted(times))]


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The value that `percent` of them don't exceed (nearest rank); None where there are none."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1] if ordered else None


def _node(index: int, depends_on: list[str]) -> dict[str, Any]:
    return {"id": f"n{index}", "tool": "note", "args": {"text": f"step {index}"}, "depends_on": depends_on}
