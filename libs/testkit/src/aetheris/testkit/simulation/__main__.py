"""`python -m aetheris.testkit.simulation`: new seeds, or one again; exit code 1 if a promise was broken."""

import argparse
import gc
import os
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from aetheris.testkit.simulation.ablations import ABLATIONS, NONE, Ablation
from aetheris.testkit.simulation.run import JobsOutcome, simulate
from aetheris.testkit.simulation.shrink import shrink

CHUNK = 50
COLLECTED_EVERY = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds on all cores until one fails; print how to repeat it, and its shortest history."""
    options = _parser().parse_args(arguments)
    ablation = next((one for one in ABLATIONS if one.name == options.ablation), NONE)
    start = options.start if options.start is not None else time.time_ns() // 1_000_000 % 10**9
    print(f"seeds {start} to {start + options.seeds - 1}, {ablation.name}")  # noqa: T201  it is a command
    begun, count, faults = time.monotonic(), 0, 0
    for outcome in _outcomes(start, options.seeds, ablation, options.processes):
        count, faults = count + 1, faults + outcome.faults
        if outcome.broken:
            print(explained(outcome, ablation))  # noqa: T201  it is a command
            return 1
    minutes = (time.monotonic() - begun) / 60
    print(f"{count} seeds held, {faults} faults, {count / max(minutes, 1e-9):,.0f} seeds a minute")  # noqa: T201
    return 0


def explained(outcome: JobsOutcome, ablation: Ablation = NONE) -> str:
    """What was broken, how to repeat it, and the shortest history that breaks the same."""
    again = f"python -m aetheris.testkit.simulation --from {outcome.seed} --seeds 1"
    if ablation is not NONE:
        again += f" --ablation '{ablation.name}'"
    least = shrink(outcome, ablation)
    lines = (
        f"seed {outcome.seed}: {outcome.broken}",
        f"again: {again}",
        f"the shortest history found ({least.steps} steps, {least.faults} faults):",
        *least.history,
        least.broken,
    )
    return "\n".join(lines)


def _outcomes(start: int, count: int, ablation: Ablation, processes: int) -> Iterator[JobsOutcome]:
    chunks = [(at, min(CHUNK, start + count - at), ablation.name) for at in range(start, start + count, CHUNK)]
    if processes == 1:
        for chunk in chunks:
            yield from _chunk(chunk)
        return
    with ProcessPoolExecutor(processes) as pool:
        for outcomes in pool.map(_chunk, chunks):
            yield from outcomes


def _chunk(what: tuple[int, int, str]) -> list[JobsOutcome]:
    start, count, name = what
    ablation = next((one for one in ABLATIONS if one.name == name), NONE)
    outcomes: list[JobsOutcome] = []
    with _seldom_collected():
        for seed in range(start, start + count):
            outcomes.append(simulate(seed, ablation=ablation))
            if len(outcomes) % COLLECTED_EVERY == 0:
                gc.collect()
    return outcomes


@contextmanager
def _seldom_collected() -> Generator[None]:
    """A run leaves little garbage that refers to itself: looking for it all the time takes a tenth of the time."""
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m aetheris.testkit.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--from", dest="start", type=int, help="the first seed (default: new ones, by the time)")
    parser.add_argument("--ablation", choices=[one.name for one in ABLATIONS], help="leave a rule out")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    return parser


if __name__ == "__main__":
    sys.exit(main())
