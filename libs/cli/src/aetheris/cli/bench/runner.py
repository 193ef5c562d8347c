"""Runs a workload on an embedded system of its own, on a temporary folder, and measures it."""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from aetheris.cli import local
from aetheris.cli.bench.completions import Completions, JobNotCompleted, completions
from aetheris.cli.bench.cpu import cpu_s
from aetheris.cli.bench.workloads import Workload, gaps_ms, percentile
from aetheris.cli.embedded import kafka, lifecycle
from aetheris.cli.embedded.jars import Progress
from aetheris.cli.embedded.plan import State
from aetheris.sdk.client import AsyncClient

TOOLS = "aetheris.cli.bench.tools"
TOOL_KNOWN_WITHIN_S = 30.0
_CLIENT = "bench"
_WARM_UP = Workload("W1", jobs=50, steps=10, in_flight=25)


@dataclass(frozen=True)
class Measured:
    """Raw figures: seconds, per job where that is said."""

    jobs: tuple[str, ...]
    wall_s: float
    job_s: tuple[float, ...]
    cpu_s: Mapping[str, float]


def run(workload: Workload, *, runs: bool, warm_up_s: float, progress: Progress) -> dict[str, Any]:
    """Start, warm up, measure, end; the report.

    Raises:
        EmbeddedError, ApiError, JobNotCompleted.
    """
    with tempfile.TemporaryDirectory(prefix="aetheris-bench-") as folder:
        data = Path(folder)
        notes = data / "notes"
        with _system(data, notes, runs=runs, progress=progress) as state:
            measured = asyncio.run(_measure(workload, data, state, warm_up_s, progress))
        with notes.open() as lines:
            return report(workload, measured, gaps_ms(lines, measured.jobs), runs=runs)


def report(workload: Workload, measured: Measured, gaps: list[float], *, runs: bool) -> dict[str, Any]:
    """The figures, as they are printed. W4's steps don't follow each other: no time lies between them."""
    total = workload.total_steps
    between = {} if workload.name == "W4" else {"p50": _rounded(gaps, 50), "p99": _rounded(gaps, 99)}
    jobs_ms = [seconds * 1e3 for seconds in measured.job_s]
    return {
        "workload": workload.name,
        "jobs": workload.jobs,
        "steps_per_job": workload.steps,
        "in_flight": workload.in_flight,
        "runs": runs,
        "cores": os.cpu_count(),
        "wall_s": round(measured.wall_s, 3),
        "steps_per_s": round(total / measured.wall_s, 1),
        "between_steps_ms": between,
        "job_ms": {"p50": _rounded(jobs_ms, 50), "p99": _rounded(jobs_ms, 99)},
        "cpu_us_per_step": {name: round(used * 1e6 / total, 1) for name, used in measured.cpu_s.items()},
    }


@contextmanager
def _system(data: Path, notes: Path, *, runs: bool, progress: Progress) -> Generator[State]:
    env = {"AETHERIS_TOOLS": TOOLS, "AETHERIS_BENCH_FILE": str(notes), "AETHERIS_RUNS": str(runs).lower()}
    with _environment(env):
        local.ensure_token(data)
        state = lifecycle.up(data, progress=progress, jvm=kafka.FAST)
    try:
        yield state
    finally:
        lifecycle.down(data)


@contextmanager
def _environment(ours: Mapping[str, str]) -> Generator[None]:
    """Of the caller's settings none that name servers: what is measured runs here."""
    outside = ("AETHERIS_KAFKA", "AETHERIS_REDIS", "AETHERIS_HTTP_PORT", "AETHERIS_DATA")
    former = {name: os.environ.get(name) for name in (*outside, *ours)}
    for name in outside:
        os.environ.pop(name, None)
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in former.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


async def _measure(workload: Workload, data: Path, state: State, warm_up_s: float, progress: Progress) -> Measured:
    async with _client(data, state, workload) as client, completions(state.kafka) as seen:
        await _tool_known(client)
        await _warm_up(client, seen, warm_up_s, progress)
        progress("measuring", f"{workload.jobs} × {workload.steps} steps")
        pids = {name: part.pid for name, part in (State.load(data) or state).parts.items() if part.pid is not None}
        pids[_CLIENT] = os.getpid()
        before, started = cpu_s(pids), time.perf_counter()
        by_sse = workload.name == "W2"
        jobs = await _all_jobs(workload, client, None if by_sse else seen)
        wall_s, after = time.perf_counter() - started, cpu_s(pids)
        used = {name: after[name] - before[name] for name in pids}
        return Measured(tuple(job for job, _ in jobs), wall_s, tuple(spent for _, spent in jobs), used)


@asynccontextmanager
async def _client(data: Path, state: State, workload: Workload) -> AsyncGenerator[AsyncClient]:
    token = local.target(data).token
    limits = httpx.Limits(max_connections=workload.in_flight + 10)
    async with AsyncClient(state.gateway, token, transport=httpx.AsyncHTTPTransport(limits=limits)) as client:
        yield client


async def _tool_known(client: AsyncClient) -> None:
    """The gateway learns of tools from the log, a moment after the executor has announced them."""
    async with asyncio.timeout(TOOL_KNOWN_WITHIN_S):
        while not any(tool["name"] == "note" for tool in await client.tools()):  # noqa: ASYNC110  seen only by asking
            await asyncio.sleep(0.05)


async def _warm_up(client: AsyncClient, seen: Completions, warm_up_s: float, progress: Progress) -> None:
    """A broker that has just started is several times slower than it will be."""
    progress("warming up", f"for {warm_up_s:.0f} s")
    until = time.perf_counter() + warm_up_s
    while time.perf_counter() < until:
        await _all_jobs(_WARM_UP, client, seen)


async def _all_jobs(workload: Workload, client: AsyncClient, seen: Completions | None) -> list[tuple[str, float]]:
    """(job, seconds from its submission to its end) of every job, `in_flight` at a time."""
    slots, plan = asyncio.Semaphore(workload.in_flight), workload.plan()

    async def one() -> tuple[str, float]:
        async with slots:
            started = time.perf_counter()
            job_id = (await client.submit(plan)).job_id
            await (_followed(client, job_id) if seen is None else seen.wait(job_id))
            return job_id, time.perf_counter() - started

    return await asyncio.gather(*(one() for _ in range(workload.jobs)))


async def _followed(client: AsyncClient, job_id: str) -> None:
    """As a client sees it: by its event stream."""
    last = ""
    async for event in client.follow(job_id):
        last = event.type
    if last != "job_completed":
        raise JobNotCompleted(f"{job_id}: {last}")


def _rounded(values: list[float], percent: float) -> float | None:
    found = percentile(values, percent)
    return None if found is None else round(found, 3)
