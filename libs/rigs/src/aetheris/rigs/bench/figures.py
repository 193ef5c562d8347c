"""What was measured, and its figures (pure)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aetheris.rigs.bench.notes import Note, first_after, gaps_ms, percentile, repeats
from aetheris.rigs.bench.usage import MemoryUse
from aetheris.rigs.bench.workloads import Workload


@dataclass(frozen=True)
class CrashTimes:
    """Monotonic ns: the signal is sent; the process is gone; the last job is seen to have ended."""

    killed_ns: int
    gone_ns: int
    done_ns: int


@dataclass(frozen=True)
class Measured:
    """Raw figures: seconds, per job or per process where that is said."""

    jobs: tuple[str, ...]
    wall_s: float
    job_s: tuple[float, ...]
    cpu_s: Mapping[str, float] = field(default_factory=dict[str, float])
    memory: Mapping[str, MemoryUse] = field(default_factory=dict[str, MemoryUse])
    crash: CrashTimes | None = None


def report(workload: Workload, measured: Measured, notes: Iterable[Note]) -> dict[str, Any]:
    """The figures, as they are printed. W4's steps don't follow each other: no time lies between them."""
    calls, total = list(notes), workload.total_steps
    gaps = [] if workload.parallel else gaps_ms(calls)
    jobs_ms = [seconds * 1e3 for seconds in measured.job_s]
    shown: dict[str, Any] = {
        "workload": workload.name,
        "jobs": workload.jobs,
        "steps_per_job": workload.steps,
        "in_flight": workload.in_flight,
        "wall_s": round(measured.wall_s, 3),
        "steps_per_s": round(total / measured.wall_s, 1),
        "ms_per_step": _rounded([spent / workload.steps for spent in jobs_ms], 50),
        "between_steps_ms": {"p50": _rounded(gaps, 50), "p99": _rounded(gaps, 99)} if gaps else {},
        "job_ms": {"p50": _rounded(jobs_ms, 50), "p99": _rounded(jobs_ms, 99)},
        "duplicates": repeats(calls),
        "cpu_us_per_step": {name: round(used * 1e6 / total, 1) for name, used in measured.cpu_s.items()},
        "rss_mib": {name: round(held.rss, 1) for name, held in measured.memory.items()},
        "pss_mib": {name: round(held.pss, 1) for name, held in measured.memory.items()},
    }
    return shown if measured.crash is None else shown | recovery(measured.crash, calls)


def recovery(crash: CrashTimes, notes: Iterable[Note]) -> dict[str, Any]:
    """Seconds from the kill to the next entry of the tool, and to the end of the last job."""
    first = first_after(notes, crash.gone_ns)
    return {
        "kill_to_first_step_s": None if first is None else round((first - crash.killed_ns) / 1e9, 3),
        "kill_to_done_s": round((crash.done_ns - crash.killed_ns) / 1e9, 3),
    }


def _rounded(values: list[float], percent: float) -> float | None:
    found = percentile(values, percent)
    return None if found is None else round(found, 3)
