"""Drives a workload on any system that takes jobs, and measures it."""

import asyncio
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import httpx

from aetheris.cli.embedded.jars import Progress
from aetheris.rigs.bench.figures import CrashTimes, Measured, report
from aetheris.rigs.bench.notes import Tail, notes_of
from aetheris.rigs.bench.settlement import settled
from aetheris.rigs.bench.usage import cpu_s, memory
from aetheris.rigs.bench.workloads import WARM_UP, Workload
from aetheris.sdk.client import ApiError

DEADLINE_S = 300.0
_CLIENT = "bench"
_LOOK_EVERY_S = 0.002


class MeasuredSystem(Protocol):
    """Something that runs jobs whose steps call the tool."""

    def pids(self) -> Mapping[str, int]:
        """Every process of it that runs now, by name."""
        ...

    async def job(self, workload: Workload) -> str:
        """Submit one job of the workload; return its id, as the notes have it, once it has ended.

        Raises:
            JobNotCompleted.
        """
        ...

    def crash_worker(self) -> None:
        """Kill the process that runs the tool; return once it is gone. Somebody starts it again."""
        ...


class JobNotCompleted(Exception):
    """A job of the bench ended otherwise: its figures would mean nothing."""


class NotMeasured(Exception):
    """A workload could not be measured; `measured` has the figures of those before it."""

    def __init__(self, message: str, measured: list[dict[str, Any]]) -> None:
        super().__init__(message)
        self.measured = measured


async def warm_up(system: MeasuredSystem, seconds: float) -> None:
    """A broker that has just started is several times slower than it will be.

    Raises:
        JobNotCompleted, TimeoutError.
    """
    until = time.perf_counter() + seconds
    async with asyncio.timeout(DEADLINE_S):
        while time.perf_counter() < until:
            await _all_jobs(system, WARM_UP)


async def measure_all(
    system: MeasuredSystem, workloads: Sequence[Workload], notes: Path, warm_up_s: float, progress: Progress
) -> list[dict[str, Any]]:
    """Warm up, then one workload after the other, each on a system that has settled; the figures of each.

    Raises:
        NotMeasured.
    """
    reports: list[dict[str, Any]] = []
    at = "warm-up"
    try:
        progress("warming up", f"for {warm_up_s:.0f} s")
        await warm_up(system, warm_up_s)
        for workload in workloads:
            at = f"{workload.name} ({workload.steps} steps a job)"
            await settled(system.pids, progress)
            progress("measuring", f"{workload.name}, {workload.jobs} × {workload.steps} steps")
            measured = await measure(system, workload, notes)
            with notes.open() as lines:
                reports.append(report(workload, measured, notes_of(lines, measured.jobs)))
    except (JobNotCompleted, TimeoutError, ApiError, httpx.HTTPError, aiohttp.ClientError) as error:
        raise NotMeasured(f"{at}: {type(error).__name__}: {error}", reports) from error
    return reports


def notes_in(folder: Path) -> Path:
    """The file that the tool writes to."""
    return folder / "notes"


async def measure(system: MeasuredSystem, workload: Workload, notes: Path) -> Measured:
    """Run all its jobs, `in_flight` at a time; where the workload says so, with a crash on the way.

    Raises:
        JobNotCompleted, TimeoutError.
    """
    async with asyncio.timeout(DEADLINE_S):
        if workload.kill_at is not None:
            return await _with_crash(system, workload, notes, workload.kill_at)
        pids = {**system.pids(), _CLIENT: os.getpid()}
        before = cpu_s(pids)
        measured = await _timed(system, workload)
        after = cpu_s(pids)
        used = {name: after[name] - before[name] for name in pids}
        return replace(measured, cpu_s=used, memory=memory(pids))


def kill(pid: int) -> None:
    """SIGKILL, and wait until the process is gone; it need not be a child."""
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        select.select([process], [], [])
    finally:
        os.close(process)


async def _with_crash(system: MeasuredSystem, workload: Workload, notes: Path, kill_at: int) -> Measured:
    tail = Tail(notes)
    running = asyncio.create_task(_timed(system, workload))
    try:
        while tail.look() < kill_at and not running.done():  # noqa: ASYNC110  a file tells only who asks
            await asyncio.sleep(_LOOK_EVERY_S)
        killed_ns = time.monotonic_ns()
        system.crash_worker()
        gone_ns = time.monotonic_ns()
        measured = await running
        return replace(measured, crash=CrashTimes(killed_ns, gone_ns, time.monotonic_ns()))
    finally:
        running.cancel()


async def _timed(system: MeasuredSystem, workload: Workload) -> Measured:
    started = time.perf_counter()
    jobs = await _all_jobs(system, workload)
    wall_s = time.perf_counter() - started
    return Measured(tuple(job for job, _ in jobs), wall_s, tuple(spent for _, spent in jobs))


async def _all_jobs(system: MeasuredSystem, workload: Workload) -> list[tuple[str, float]]:
    """(job, seconds from its submission to its end) of every job, `in_flight` at a time."""
    slots = asyncio.Semaphore(workload.in_flight)

    async def one() -> tuple[str, float]:
        async with slots:
            started = time.perf_counter()
            return await system.job(workload), time.perf_counter() - started

    return await asyncio.gather(*(one() for _ in range(workload.jobs)))
