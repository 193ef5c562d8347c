"""`aetheris bench`: what a step costs on this machine."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from aetheris.cli.console import CommandError, Exit, Json, errors_as_exits, fields, print_json, progress
from aetheris.rigs.bench.measurement import NotMeasured
from aetheris.rigs.bench.runner import Variant, run
from aetheris.rigs.bench.workloads import workload as workload_of

Count = Annotated[int | None, typer.Option(min=1, help="By default the workload's own number.")]


class Workloads(StrEnum):
    """W1 many jobs, W2 one at a time, W3 a long one, W4 parallel steps, W5 a killed worker, W6 a workflow (and W3)."""

    W1 = "W1"
    W2 = "W2"
    W3 = "W3"
    W4 = "W4"
    W5 = "W5"
    W6 = "W6"


def bench(
    *,
    workload: Annotated[Workloads, typer.Option(help=str(Workloads.__doc__))] = Workloads.W1,
    jobs: Count = None,
    steps: Count = None,
    in_flight: Annotated[int, typer.Option(min=1, help="W1, W5: jobs at a time.")] = 100,
    runs: Annotated[bool, typer.Option("--runs/--no-runs", help="Let chains of steps run as one.")] = True,
    flush_each: Annotated[bool, typer.Option("--flush-each", help="Let Kafka flush every record to disk.")] = False,
    policy: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="The policy that decides about the calls of `note`."),
    ] = None,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds of load before it counts.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Measure steps per second, the time between steps and CPU, on a system of its own."""
    with errors_as_exits(as_json=as_json):
        chosen = workload_of(workload.value, jobs, steps, in_flight)
        try:
            variant = Variant(runs=runs, flush_each=flush_each, policy=policy)
            beside = [workload_of("W3", jobs, steps)] if chosen.in_code else []
            found, *others = run([chosen, *beside], variant=variant, warm_up_s=warm_up, progress=progress)
        except NotMeasured as error:
            raise CommandError(Exit.FAILED, "bench_failed", str(error)) from None
        found |= {f"{one['workload']}_ms_per_step": one["ms_per_step"] for one in others}
        if as_json:
            print_json(found)
        else:
            fields([(name, _flat(value)) for name, value in found.items()])


def _flat(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return "  ".join(f"{name} {part}" for name, part in cast("dict[str, Any]", value).items())
