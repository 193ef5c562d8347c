"""`make bench-spans`: what traces cost in W1, of all keys, of 5 % of the jobs, and of none: steps a second, and CPU.

The three take turns, each on a fresh system. The spans go to a receiver of OTLP/HTTP that keeps them as they come and
decodes them in the end: what a tracing back end costs is not the question.
"""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from aetheris.rigs.bench import runner
from aetheris.rigs.bench.workloads import Workload, workload
from tests.bench.medians import SERVICES
from tests.bench.receiver import exports

SHARES: Mapping[str, float | None] = {"none": None, "5 %": 0.05, "all": 1.0}
"""Of the jobs whose keys are traced; without an exporter, none is."""
MOST = 0.15
"""The share of throughput that all of them may cost."""


@dataclass(frozen=True)
class SpansRun:
    """One run: steps/s, CPU of all services (not servers, not the client) in µs a step, spans a minute."""

    steps_per_s: float
    cpu_us: float
    spans_a_minute: float


def bench(
    *,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each kind.")] = 5,
    jobs: Annotated[int, typer.Option(min=1, help="Of ten steps each.")] = 1000,
) -> None:
    """Measure; 1 if traces of all keys cost more than 15 % of throughput."""
    load = workload("W1", jobs=jobs)
    runs: dict[str, list[SpansRun]] = {kind: [] for kind in SHARES}
    for number in range(rounds):
        kinds = list(SHARES)
        for kind in kinds[number % len(kinds) :] + kinds[: number % len(kinds)]:
            runs[kind].append(_measured(load, SHARES[kind]))
            _say(f"{kind}: {runs[kind][-1]}")
    found = {kind: _medians(of) for kind, of in runs.items()}
    none = found["none"]
    said = {
        kind: {
            "steps_per_s": round(one.steps_per_s),
            "throughput_ratio": round(one.steps_per_s / none.steps_per_s, 3),
            "services_cpu_us_per_step": round(one.cpu_us),
            "services_cpu_ratio": round(one.cpu_us / none.cpu_us, 3),
            "spans_a_minute": round(one.spans_a_minute),
        }
        for kind, one in found.items()
    }
    sys.stdout.write(json.dumps({"rounds": rounds, "jobs": jobs, "traced": said}, indent=1) + "\n")
    raise typer.Exit(0 if found["all"].steps_per_s >= (1 - MOST) * none.steps_per_s else 1)


def _measured(load: Workload, share: float | None) -> SpansRun:
    with TemporaryDirectory(prefix="aetheris-bench-") as folder:
        file = Path(folder) / "spans"
        with _receiving(file) as port:
            env = {} if share is None else _exporting(port, share)
            [found] = runner.run([load], variant=runner.Variant(env=env), warm_up_s=60.0, progress=_quiet)
        spans = _in_the_end(file, found["wall_s"])
    cpu = sum(used for name, used in found["cpu_us_per_step"].items() if name in SERVICES)
    return SpansRun(found["steps_per_s"], cpu, spans / found["wall_s"] * 60)


@contextmanager
def _receiving(file: Path) -> Generator[int]:
    told, tell = os.pipe()
    argv = [sys.executable, "-m", "tests.bench.receiver", str(file), str(tell)]
    with subprocess.Popen(argv, pass_fds=[tell]) as child:
        os.close(tell)
        try:
            with os.fdopen(told) as port:
                yield int(port.readline())
        finally:
            child.kill()


def _exporting(port: int, share: float) -> Mapping[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "AETHERIS_TRACE_SAMPLE": str(share),
    }


def _in_the_end(file: Path, wall_s: float) -> int:
    """How many spans belong to the last `wall_s` seconds in which calls were made: what was measured."""
    spans = [
        span
        for body in exports(file)
        for batch in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in batch.scope_spans
        for span in scope.spans
    ]
    last = max((span.end_time_unix_nano for span in spans if span.name == "begin"), default=0)
    return sum(span.start_time_unix_nano >= last - wall_s * 1e9 for span in spans)


def _medians(runs: Sequence[SpansRun]) -> SpansRun:
    return SpansRun(
        median(run.steps_per_s for run in runs),
        median(run.cpu_us for run in runs),
        median(run.spans_a_minute for run in runs),
    )


def _say(what: str) -> None:
    sys.stderr.write(f"→ {what}\n")


def _quiet(_part: str, _what: str) -> None:
    """Ten starts are of no interest."""


if __name__ == "__main__":
    typer.run(bench)
