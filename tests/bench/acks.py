"""What it costs that three brokers have each record, of which two must: W1 and W2, in turn with one broker."""

import argparse
import os
import sys
from collections.abc import Mapping
from statistics import median
from typing import Any

from aetheris.rigs.bench.runner import HEAP_MIB, Variant, run
from aetheris.rigs.bench.workloads import workload
from tests.bench.machine import shape
from tests.testkit.doc_tables import write_table

BROKERS = (1, 3)
HEADS = (
    *("brokers", "W1 steps/s", "W1 CPU µs/step", "of it brokers"),
    *("W2 step p50 / p99, ms", "W2 job of 10, ms", "W2 CPU µs/step", "of it brokers"),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--warm-up", type=float, default=60.0)
    given = parser.parse_args()
    before = os.getloadavg()[0]
    found: dict[int, list[dict[str, Mapping[str, Any]]]] = {count: [] for count in BROKERS}
    for _ in range(given.runs):
        for count in BROKERS:
            reports = run(
                [workload("W1"), workload("W2")],
                variant=Variant(brokers=count),
                warm_up_s=given.warm_up,
                progress=lambda part, said: print(part, said, file=sys.stderr),  # noqa: T201
            )
            found[count].append({report["workload"]: report for report in reports})
            print(count, {name: one["steps_per_s"] for name, one in found[count][-1].items()}, file=sys.stderr)  # noqa: T201
    write_table("kafka-cluster.md", "acks", HEADS, [_row(count, found[count]) for count in BROKERS])
    load = f"load {before:.1f} before and {os.getloadavg()[0]:.1f} after"
    print(f"{HEAP_MIB} MiB of heap for all brokers; medians of {given.runs}; {load}; {shape()}")  # noqa: T201


def _row(count: int, reports: list[dict[str, Mapping[str, Any]]]) -> list[str]:
    def middle(name: str, *path: str) -> float:
        return median(_at(report[name], path) for report in reports)

    def cpu(name: str, part: str = "") -> float:
        return median(
            sum(used for process, used in report[name]["cpu_us_per_step"].items() if process.startswith(part))
            for report in reports
        )

    return [
        str(count),
        f"{middle('W1', 'steps_per_s'):,.0f}",
        f"{cpu('W1'):.0f}",
        f"{cpu('W1', 'kafka'):.0f}",
        f"{middle('W2', 'between_steps_ms', 'p50'):.2f} / {middle('W2', 'between_steps_ms', 'p99'):.2f}",
        f"{middle('W2', 'job_ms', 'p50'):.1f}",
        f"{cpu('W2'):.0f}",
        f"{cpu('W2', 'kafka'):.0f}",
    ]


def _at(report: Mapping[str, Any], path: tuple[str, ...]) -> float:
    found: Any = report
    for part in path:
        found = found[part]
    return found


if __name__ == "__main__":
    main()
