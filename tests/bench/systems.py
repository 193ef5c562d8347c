"""Everything that is measured, in the order of a round."""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from aetheris.cli.embedded.jars import Progress
from aetheris.rigs.bench import runner
from aetheris.rigs.bench.measurement import MeasuredSystem, measure_all, notes_in
from aetheris.rigs.bench.workloads import Workload, workload
from tests.bench import dbos, floor, langgraph, restate, skeleton, temporal
from tests.bench.environment import Environment
from tests.bench.medians import AT_BEST

ALL = ("W1", "W2", "W3", "W3x5", "W4", "W5")
WORKLOADS = {
    "W1": workload("W1"),
    "W2": workload("W2"),
    "W3": workload("W3", steps=1000),
    "W3x5": workload("W3", steps=5000),
    "W4": workload("W4"),
    "W5": workload("W5"),
    "W6": workload("W6", steps=1000),
    "W6x5": workload("W6", steps=5000),
}
JUDGED = Path(__file__).parent / "judged.toml"
JVM_WARM_UP_S = 60.0
"""Behind that Kafka's JVM compiles little: before it, its C2 takes a tenth of the machine."""
PEER_WARM_UP_S = 5.0

Figures = list[dict[str, Any]]
Measure = Callable[[Sequence[Workload], Environment, Progress], Figures]
Running = Callable[[Path, Environment], AbstractAsyncContextManager[MeasuredSystem]]


@dataclass(frozen=True)
class Entry:
    """One system: how it is measured, in which workloads, and what makes its steps durable.

    `once`: slower than its sibling in every workload, so one run has to do.
    """

    name: str
    title: str
    durability: str
    measure: Measure
    workloads: Sequence[str] = ALL
    needs: Sequence[str] = ()
    peer: bool = True
    once: bool = False


def aetheris(variant: runner.Variant) -> Measure:
    """The embedded system."""

    def measure(workloads: Sequence[Workload], environment: Environment, progress: Progress) -> Figures:  # noqa: ARG001  one signature
        return runner.run(workloads, variant=variant, warm_up_s=JVM_WARM_UP_S, progress=progress)

    return measure


def peer(running: Running) -> Measure:
    """A system with processes of its own."""

    async def session(workloads: Sequence[Workload], environment: Environment, progress: Progress) -> Figures:
        with tempfile.TemporaryDirectory(prefix="aetheris-bench-", ignore_cleanup_errors=True) as folder:
            async with running(Path(folder), environment) as system:
                return await measure_all(system, workloads, notes_in(Path(folder)), PEER_WARM_UP_S, progress)

    def measure(workloads: Sequence[Workload], environment: Environment, progress: Progress) -> Figures:
        return asyncio.run(session(workloads, environment, progress))

    return measure


def bare(running: Callable[[Path, Progress], AbstractAsyncContextManager[MeasuredSystem]]) -> Measure:
    """Less than a system: on the loop that the services run on."""

    async def session(workloads: Sequence[Workload], progress: Progress) -> Figures:
        with tempfile.TemporaryDirectory(prefix="aetheris-bench-", ignore_cleanup_errors=True) as folder:
            async with running(Path(folder), progress) as system:
                return await measure_all(system, workloads, notes_in(Path(folder)), JVM_WARM_UP_S, progress)

    def measure(workloads: Sequence[Workload], environment: Environment, progress: Progress) -> Figures:  # noqa: ARG001  one signature
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            return loop.run(session(workloads, progress))

    return measure


_PAGE_CACHE = "Kafka, one node, acks=all: acknowledged from the page cache; Valkey appendfsync everysec"
_TEMPORAL = "development server, SQLite in WAL mode: fsync at each commit"

SYSTEMS = (
    Entry("aetheris", "**Aetheris**", _PAGE_CACHE, aetheris(runner.Variant()), peer=False),
    Entry(
        "no-runs",
        "Aetheris, runs off",
        _PAGE_CACHE,
        aetheris(runner.Variant(runs=False)),
        workloads=("W1",),
        peer=False,
    ),
    Entry(
        "judged",
        "Aetheris, a policy that judges every call",
        _PAGE_CACHE,
        aetheris(runner.Variant(policy=JUDGED)),
        workloads=("W1",),
        peer=False,
    ),
    Entry(
        "workflow",
        "Aetheris, a workflow",
        _PAGE_CACHE,
        aetheris(runner.Variant()),
        workloads=("W6", "W6x5"),
        peer=False,
    ),
    Entry(
        "flush",
        "Aetheris, flush.messages=1",
        "Kafka flushes every record to disk (fsync) before it acknowledges; Valkey appendfsync everysec",
        aetheris(runner.Variant(flush_each=True)),
        workloads=("W1", "W2"),
        peer=False,
    ),
    Entry(
        "restate",
        "Restate",
        "fsync of its log for each group of steps (its default)",
        peer(restate.running),
        needs=("npm",),
    ),
    Entry(
        "langgraph",
        "LangGraph, SQLite",
        'durability="sync": SQLite in WAL mode, fsync for each step',
        peer(langgraph.running),
    ),
    Entry(
        "dbos-postgres",
        "DBOS, Postgres",
        "Postgres with its package's settings: fsync at each commit",
        peer(dbos.on_postgres),
        needs=("postgres",),
    ),
    Entry(
        "dbos-sqlite",
        "DBOS, SQLite",
        "SQLite with a rollback journal, fsync at each commit",
        peer(dbos.on_sqlite),
        workloads=("W1", "W2", "W4", "W5"),
        once=True,
    ),
    Entry(
        "temporal-local",
        "Temporal, local activities",
        f"{_TEMPORAL}; local activities are recorded only when their workflow task ends, many steps at once",
        peer(temporal.with_local_activities),
    ),
    Entry(
        "temporal",
        "Temporal, activities",
        f"{_TEMPORAL}; start_to_close_timeout 5 s",
        peer(temporal.with_activities),
        workloads=("W1", "W2", "W4", "W5"),
        once=True,
    ),
    Entry(
        "skeleton",
        "skeleton: our processes and streams, nothing decided",
        _PAGE_CACHE,
        bare(skeleton.running),
        workloads=("W1", "W2", "W3", "W3x5", "W4"),
        peer=False,
    ),
    Entry(
        AT_BEST,
        "skeleton that owes: each event written, folded, audited; nothing decided",
        _PAGE_CACHE,
        bare(partial(skeleton.running, records="owed")),
        workloads=("W1", "W2", "W3", "W3x5", "W4"),
        peer=False,
    ),
    Entry(
        "floor",
        "floor: no framework",
        _PAGE_CACHE,
        bare(floor.running),
        workloads=("W1", "W2", "W3", "W3x5", "W4"),
        peer=False,
    ),
)
