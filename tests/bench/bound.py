"""What a step must cost by the contract's records alone, and which aims lie beyond; the end of `make profile`.

A step of a run has four records on jobs.events: started, finished, command_committed, node_finished. Planner, ledger,
executor and verifier fetch each; the first three decode and fold it, the last audits it.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from statistics import median

import uvloop

from aetheris.cli.bench.notes import percentile
from aetheris.cli.console import progress
from aetheris.streams.log import Appender, Reader
from tests.bench import floor
from tests.bench.machine import busy_neighbour
from tests.bench.page import number, placed, table
from tests.bench.profile import DOCUMENT
from tests.bench.records import alone

TIMES: Mapping[str, int] = {"write": 4, "fetch": 16, "decode": 12, "fold": 12, "audit": 4}
"""How often a step pays for each piece of work."""
THREADS = 2
"""As many processes as compete in `beside`."""
CPU_US = 450
BATCH = (b"x" * 700,) * 3
"""What a run appends between two calls: finished, command_committed, and the next started."""
WARM_UP_S = 20.0
TRIPS = 500
ROUNDS = 10


@dataclass(frozen=True)
class Costs:
    """µs a record by piece of work, in one process alone and beside a busy one; ms of a produce and its read-back."""

    alone_us: Mapping[str, float]
    beside_us: Mapping[str, float]
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Compared:
    """What the comparison found: the line of each figure, and W1's CPU a step of the floor and of the client."""

    peers: Mapping[str, tuple[str, float]]
    """Figure → (best peer, its figure)."""
    floor_us: float
    client_us: float


def measured() -> Costs:
    """On a machine that does nothing else."""
    quiet = alone()
    with busy_neighbour():
        beside = alone(median)
    with (
        tempfile.TemporaryDirectory(prefix="aetheris-bench-") as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop,
    ):
        return Costs(quiet, beside, *loop.run(_trips_ms(Path(folder))))


def read(document: str) -> Compared:
    """The tables that `make bench` wrote.

    Raises: KeyError, where they lack a line.
    """
    lines = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in document.splitlines()]
    used = {(line[0], line[1]): line[2] for line in lines if len(line) == 5}
    peers = {line[0]: (line[2], _value(line[3])) for line in lines if len(line) == 5 and line[0].startswith("W")}
    floor_us = _value(used["floor: no framework", "all but the client (`bench`)"])
    return Compared(peers, floor_us, _value(used["Aetheris", "bench"]))


@dataclass(frozen=True)
class Aim:
    """What is asked for, and what the design can do on this machine at best."""

    what: str
    asked: float
    bound: float
    unit: str
    more_is_better: bool = False

    @property
    def row(self) -> Sequence[str]:
        """As the table has it."""
        within = self.bound >= self.asked if self.more_is_better else self.bound <= self.asked
        shown = (f"{number(value)} {self.unit}" for value in (self.asked, self.bound))
        return (self.what, *shown, "yes" if within else "**no**")


def section(costs: Costs, compared: Compared) -> str:
    """Both tables, and what follows from them."""
    sums = [sum(TIMES[name] * us[name] for name in TIMES) for us in (costs.alone_us, costs.beside_us)]
    alone_us, beside_us = (us + compared.floor_us for us in sums)
    shared = number(compared.floor_us)
    work = [
        *(_row(name, costs) for name in TIMES),
        ("tool, requests, Redis: what the floor takes in W1", "1", "–", shared, "–", shared),
        ("**a step**", "", "", "", f"**{alone_us:.0f}**", f"**{beside_us:.0f}**"),
    ]
    most = THREADS * 1e6 / (beside_us + compared.client_us)
    theirs, best = compared.peers["W1, steps/s"]
    return "\n\n".join(
        (
            table(("work", "times a step", "µs alone", "µs beside", "alone, a step", "beside, a step"), work),
            f"With the client's {number(compared.client_us)} µs, {THREADS} threads do at most {number(most)} steps a "
            f"second: {most / best:.1f} times what {theirs} does. A produce of {len(BATCH)} records of {len(BATCH[0])} "
            f"bytes and its read-back, on a broker that nobody else uses, in the quietest of {ROUNDS} rounds: "
            f"{number(costs.p50_ms)} ms at p50, {number(costs.p99_ms)} ms at p99.",
            table(
                ("aim", "asks for", "at best, here", "possible"),
                [aim.row for aim in aims(costs, compared, most, beside_us)],
            ),
        )
    )


def aims(costs: Costs, compared: Compared, most: float, step_us: float) -> Iterator[Aim]:
    """Each aim that the records or the read-back bound."""

    def beside(what: str, times: float, figure: str) -> tuple[str, float]:
        name, theirs = compared.peers[figure]
        return f"{what} {times:.3g} × {name}", times * theirs

    yield Aim(*beside("W1:", 4, "W1, steps/s"), most, "steps/s", more_is_better=True)
    yield Aim(*beside("W1, runs off:", 2.5, "W1, steps/s, runs off"), most, "steps/s", more_is_better=True)
    yield Aim("W1: CPU of a step", CPU_US, step_us, "µs")
    yield Aim(*beside("W2, p50:", 0.8, "W2, p50 between steps, ms"), costs.p50_ms, "ms")
    yield Aim(*beside("W2, p99:", 1, "W2, p99 between steps, ms"), costs.p99_ms, "ms")
    yield Aim(*beside("W3:", 1.4, "W3, steps/s at 5,000 steps"), 1e3 / costs.p50_ms, "steps/s", more_is_better=True)


def _row(name: str, costs: Costs) -> Sequence[str]:
    both = (costs.alone_us[name], costs.beside_us[name])
    shown = (f"{us:.1f}" for us in both)
    return [name, str(TIMES[name]), *shown, *(f"{TIMES[name] * us:.0f}" for us in both)]


def _value(cell: str) -> float:
    return float(cell.replace(",", ""))


async def _trips_ms(data: Path) -> tuple[float, float]:
    """p50 and p99 of the quietest round."""
    async with floor.clients(data, progress) as (appender, reader, _):
        warm = time.perf_counter() + WARM_UP_S
        while time.perf_counter() < warm:
            await _trip_ms(appender, reader)
        rounds = [[await _trip_ms(appender, reader) for _ in range(TRIPS)] for _ in range(ROUNDS)]
        return min(((percentile(one, 50) or 0.0, percentile(one, 99) or 0.0) for one in rounds), key=itemgetter(1))


async def _trip_ms(appender: Appender, reader: Reader) -> float:
    began = time.perf_counter()
    await floor.there_and_back(appender, reader, [tuple(floor.record(b"job", value) for value in BATCH)])
    return (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    document = DOCUMENT.read_text()
    text = section(measured(), read(document))
    sys.stdout.write(text + "\n")
    DOCUMENT.write_text(placed(document, "bound", text))
