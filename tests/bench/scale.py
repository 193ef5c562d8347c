"""`make bench-scale`: submissions that wait, and executors that are added; into docs/performance.md.

A hundred thousand jobs are submitted while the executor stands still: what is not begun must lie in Kafka, not in
memory. Then a tool that takes 20 ms, a few calls at a time in each executor, with one executor after the other.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import aiohttp
import typer

from aetheris.cli import local
from aetheris.cli.embedded import lifecycle
from aetheris.rigs.bench.usage import memory
from aetheris.rigs.bench.workloads import chain
from tests.bench.page import placed, table
from tests.bench.profile import DOCUMENT, SERVICES
from tests.testkit.external_server import until
from tests.testkit.system import System, running_system

CLIENTS = 16
AT_WORK = 8
"""Calls at a time in one executor: more than the machine has to do for them, so that waiting is what limits."""
EXECUTORS = (1, 2, 3)
STEPS = 10
READY_WITHIN_S = 120.0


@dataclass(frozen=True)
class Flood:
    """Memory of each service in MiB after some submissions and after all; how many a second were taken."""

    few: int
    many: int
    mib: Sequence[dict[str, float]]
    per_s: float
    restart_s: float


def measure(
    *,
    flood: Annotated[int, typer.Option(min=1000, help="Submissions that wait.")] = 100_000,
    jobs: Annotated[int, typer.Option(min=1, help="Of ten steps each, for each number of executors.")] = 300,
) -> None:
    """Measure, and write what was found into docs/performance.md."""
    with TemporaryDirectory(prefix="aetheris-scale-") as name:
        waiting = _flood(Path(name) / "flood", flood)
        rates = [_rate(Path(name) / f"executors-{count}", count, jobs) for count in EXECUTORS]
    text = _page(waiting, rates)
    sys.stdout.write(text + "\n")
    DOCUMENT.write_text(placed(DOCUMENT.read_text(), "scale", text))


def _flood(folder: Path, many: int) -> Flood:
    few = many // 10
    with running_system(folder / "data", _env(folder)) as system:
        system.wait_ready(READY_WITHIN_S)
        os.kill(system.pid("executor-0"), signal.SIGSTOP)
        _submit(system, few, steps=1)
        before = _mib(system)
        begun = time.monotonic()
        _submit(system, many - few, steps=1)
        per_s = (many - few) / (time.monotonic() - begun)
        after = _mib(system)
        begun = time.monotonic()
        system.kill("planner-0")
        until(lambda: lifecycle.status(system.data).parts["planner-0"].ready, READY_WITHIN_S)
        return Flood(few, many, (before, after), per_s, time.monotonic() - begun)


def _rate(folder: Path, executors: int, jobs: int) -> float:
    """Steps a second."""
    env = _env(folder) | {"AETHERIS_RUNNING_TOOLS": str(AT_WORK)}
    notes = folder / "notes"
    with running_system(folder / "data", env, executor=executors) as system:
        system.wait_ready(READY_WITHIN_S)
        _submit(system, jobs // 5, steps=STEPS)
        until(lambda: _lines(notes) >= jobs // 5 * STEPS, READY_WITHIN_S)
        begun = time.monotonic()
        _submit(system, jobs, steps=STEPS)
        until(lambda: _lines(notes) >= (jobs + jobs // 5) * STEPS, 600)
        return jobs * STEPS / (time.monotonic() - begun)


def _env(folder: Path) -> dict[str, str]:
    folder.mkdir()
    return {
        "AETHERIS_TOOLS": "aetheris.rigs.bench.tools",
        "AETHERIS_BENCH_FILE": str(folder / "notes"),
        "AETHERIS_TRACE_SAMPLE": "0",
    }


def _submit(system: System, jobs: int, steps: int) -> None:
    """All of them, a few at a time."""
    body = {"plan": chain(steps, "note" if steps == 1 else "note_slowly")}
    gateway, token = system.state().gateway, local.target(system.data).token

    async def all_of_them() -> None:
        left = iter(range(jobs))
        async with aiohttp.ClientSession(gateway, headers={"Authorization": f"Bearer {token}"}) as http:

            async def client() -> None:
                for _ in left:
                    async with http.post("/api/jobs", json=body) as answer:
                        answer.raise_for_status()

            await asyncio.gather(*(client() for _ in range(CLIENTS)))

    asyncio.run(all_of_them())


def _mib(system: System) -> dict[str, float]:
    return {name: held.rss for name, held in memory({name: system.pid(name) for name in SERVICES}).items()}


def _lines(notes: Path) -> int:
    return notes.read_bytes().count(b"\n") if notes.exists() else 0


def _page(flood: Flood, rates: Sequence[float]) -> str:
    names = [name.removesuffix("-0") for name in SERVICES]
    rows = [
        [f"{count:,}", *(f"{mib[name]:.0f}" for name in SERVICES)]
        for count, mib in zip((flood.few, flood.many), flood.mib, strict=True)
    ]
    pairs = zip(EXECUTORS, rates, strict=True)
    speed = ", ".join(f"{count}: {rate:,.0f} ({rate / rates[0]:.2f})" for count, rate in pairs)
    return "\n\n".join(
        [
            table(("submissions that wait; MiB of", *names), rows),
            f"They were taken at {flood.per_s:,.0f} a second; the planner, killed behind the last of them, was ready "
            f"again after {flood.restart_s:.1f} s.",
            f"Steps a second by executors, with {AT_WORK} calls of 20 ms at a time each (times one alone): {speed}.",
        ]
    )


if __name__ == "__main__":
    typer.run(measure)
