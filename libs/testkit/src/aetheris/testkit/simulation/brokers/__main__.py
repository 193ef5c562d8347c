"""`python -m aetheris.testkit.simulation.brokers`: new seeds, or one again; exit code 1 if a promise was broken."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from aetheris.testkit.simulation.brokers.run import simulate_brokers
from aetheris.testkit.simulation.outcome import RunOutcome


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds on all cores until one fails; print it, and what went wrong in it."""
    parser = argparse.ArgumentParser(prog="python -m aetheris.testkit.simulation.brokers", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--from", dest="start", type=int, help="the first seed (default: new ones, by the time)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    options = parser.parse_args(arguments)
    start = options.start if options.start is not None else time.time_ns() // 1_000_000 % 10**9
    begun, count, faults = time.monotonic(), 0, 0
    print(f"seeds {start} to {start + options.seeds - 1}, brokers")  # noqa: T201  it is a command
    with ProcessPoolExecutor(options.processes) as pool:
        for outcome in pool.map(simulate_brokers, range(start, start + options.seeds), chunksize=20):
            count, faults = count + 1, faults + outcome.faults
            if outcome.broken:
                print(explained(outcome))  # noqa: T201  it is a command
                return 1
    minutes = (time.monotonic() - begun) / 60
    print(f"{count} seeds held, {faults} faults, {count / max(minutes, 1e-9):,.0f} seeds a minute")  # noqa: T201
    return 0


def explained(outcome: RunOutcome) -> str:
    """What was broken, how to repeat it, and what had gone wrong."""
    again = f"python -m aetheris.testkit.simulation.brokers --from {outcome.seed} --seeds 1"
    return "\n".join((f"seed {outcome.seed}: {outcome.broken}", f"again: {again}", *outcome.history))


if __name__ == "__main__":
    sys.exit(main())
