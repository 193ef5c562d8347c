"""The medians of several runs, and how Aetheris stands to its peers (pure)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

SERVICES = ("gateway-0", "planner-0", "ledger-0", "executor-0", "prober-0", "verifier-0")

Found = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
"""System → workload → the figures of each run."""


@dataclass(frozen=True)
class Spread:
    """A median, and the least and the largest of the runs."""

    median: float
    least: float
    largest: float


@dataclass(frozen=True)
class Figure:
    """One that is compared: where it stands in a run's figures, how many times the best peer's it should be.

    `ours`: of which system of ours; `theirs`: where the peers have it, if elsewhere.
    """

    what: str
    path: tuple[str, ...]
    aim: float
    more_is_better: bool = False
    ours: str = "aetheris"
    theirs: tuple[str, ...] | None = None


COMPARED = (
    Figure("W1, steps/s", ("W1", "steps_per_s"), 1.5, more_is_better=True),
    Figure("W1, steps/s, each record flushed", ("W1", "steps_per_s"), 1.1, more_is_better=True, ours="flush"),
    Figure("W1, steps/s, runs off", ("W1", "steps_per_s"), 1, more_is_better=True, ours="no-runs"),
    Figure("W2, p50 between steps, ms", ("W2", "between_steps_ms", "p50"), 1.25),
    Figure("W2, p99 between steps, ms", ("W2", "between_steps_ms", "p99"), 1),
    Figure("W2, a job of 10 steps, ms", ("W2", "job_ms", "p50"), 1),
    Figure("W3, steps/s at 5,000 steps", ("W3x5", "steps_per_s"), 1.4, more_is_better=True),
    Figure("W4, 200 parallel steps, s", ("W4", "wall_s"), 1.2),
    Figure("W5, from kill to done, s", ("W5", "kill_to_done_s"), 1),
    Figure("W6, ms a step of 1,000", ("W6", "ms_per_step"), 1, ours="workflow", theirs=("W3", "ms_per_step")),
    Figure("W6, ms a step of 5,000", ("W6x5", "ms_per_step"), 1, ours="workflow", theirs=("W3x5", "ms_per_step")),
)
AT_BEST = "skeleton-owed"
"""Does all that Aetheris owes to each record, and decides nothing: what Aetheris can't do better than."""


@dataclass(frozen=True)
class Compared:
    """A figure of Aetheris beside that of its best peer, and what it could be at best, where that was measured."""

    figure: Figure
    ours: float
    best: str
    theirs: float
    at_best: float | None

    @property
    def ratio(self) -> float:
        """How many times better; below 1, the peer is ahead."""
        return self._times(self.ours)

    @property
    def ratio_at_best(self) -> float | None:
        """How many times better the skeleton is."""
        return None if self.at_best is None else self._times(self.at_best)

    def _times(self, value: float) -> float:
        return value / self.theirs if self.figure.more_is_better else self.theirs / value


def spread(found: Found, system: str, workload: str, *path: str) -> Spread | None:
    """Of one figure over the runs; None where it was not measured."""
    values = [value for run in found.get(system, {}).get(workload, ()) if (value := _at(run, path)) is not None]
    return Spread(median(values), min(values), max(values)) if values else None


def cpu_us(found: Found, system: str) -> Spread | None:
    """W1's CPU per step over all of the system's processes; the client that asks for the jobs is none of them."""
    used = [{"all": sum(_without_client(run["cpu_us_per_step"]))} for run in found.get(system, {}).get("W1", ())]
    return spread({system: {"W1": used}}, system, "W1", "all")


def services_mib(found: Found, system: str, kind: str) -> Spread | None:
    """`rss_mib` or `pss_mib` of the services together, at the end of W1."""
    held = [{"all": sum(run[kind].get(name, 0.0) for name in SERVICES)} for run in found.get(system, {}).get("W1", ())]
    return spread({system: {"W1": held}}, system, "W1", "all")


def compared(found: Found, peers: Sequence[str]) -> list[Compared]:
    """Each figure that Aetheris and some peer have."""
    rows = (_compared(found, peers, figure) for figure in COMPARED)
    return [row for row in rows if row is not None]


def _compared(found: Found, peers: Sequence[str], figure: Figure) -> Compared | None:
    ours = spread(found, figure.ours, *figure.path)
    path = figure.theirs or figure.path
    theirs = {peer: one.median for peer in peers if (one := spread(found, peer, *path)) is not None}
    if ours is None or not theirs:
        return None
    best = (max if figure.more_is_better else min)(theirs, key=lambda peer: theirs[peer])
    at_best = spread(found, AT_BEST, *path)
    return Compared(figure, ours.median, best, theirs[best], None if at_best is None else at_best.median)


def _without_client(used: Mapping[str, float]) -> Iterable[float]:
    return (one for name, one in used.items() if name not in ("bench", "temporal-client"))


def _at(run: Mapping[str, Any], path: Sequence[str]) -> float | None:
    for name in path[:-1]:
        run = run.get(name, {})
    return run.get(path[-1])
