"""`make bench`: measure Aetheris and its peers, alternating; print the tables; write them where all was measured."""

import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from aetheris.cli.embedded.errors import EmbeddedError
from aetheris.rigs.bench.measurement import NotMeasured
from tests.bench import machine
from tests.bench.environment import Environment, prepared
from tests.bench.page import Run, page, placed
from tests.bench.plot import draw
from tests.bench.systems import SYSTEMS, WORKLOADS, Entry

_DOCS = Path(__file__).parents[2] / "docs"
_RUNS_THAT_COUNT = 3
_ENDED_BY_CTRL_C = 130
_PLOT = "![The medians, by workload](performance.svg)"
_PEERS_HELP = f"Which beside Aetheris, by comma; all by default: {', '.join(entry.name for entry in SYSTEMS[1:])}."


def bench(
    *,
    peers: Annotated[str, typer.Option(help=_PEERS_HELP)] = "",
    workloads: Annotated[str, typer.Option(help="Which, by comma: W1 to W6; all by default.")] = "",
    runs: Annotated[int, typer.Option(min=1, help="Rounds through all systems.")] = _RUNS_THAT_COUNT,
    write: Annotated[bool, typer.Option(help="Write docs/performance.md although not all was measured.")] = False,
    raw: Annotated[Path | None, typer.Option(help="Keep every run's figures in this file, as JSON.")] = None,
) -> None:
    """Measure; a figure means something only on a machine that does nothing else."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell started this in the background
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    entries, names = chosen(peers), chosen_workloads(workloads)
    try:
        environment = prepared([need for entry in entries for need in entry.needs], say)
        run = measured(entries, names, runs, environment, raw)
        text = page(run, entries)
        sys.stdout.write(text + "\n")
        if write or (len(entries) == len(SYSTEMS) and len(names) == len(WORKLOADS) and runs >= _RUNS_THAT_COUNT):
            written(text, run, entries, environment)
        else:
            say("docs", "not written: only a part was measured (--write does)")
    except EmbeddedError as error:
        say("bench", str(error))
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(_ENDED_BY_CTRL_C) from None
    raise typer.Exit(1 if run.failures else 0)


def chosen(peers: str) -> list[Entry]:
    """Aetheris, and the systems that are named; all where none is.

    Raises: typer.BadParameter.
    """
    wanted = _names(peers) or [entry.name for entry in SYSTEMS]
    if unknown := set(wanted) - {entry.name for entry in SYSTEMS}:
        raise typer.BadParameter(f"unknown: {', '.join(sorted(unknown))}", param_hint="--peers")
    return [entry for entry in SYSTEMS if entry.name in ("aetheris", *wanted)]


def chosen_workloads(workloads: str) -> list[str]:
    """The workloads that are named, W3 and W6 in both lengths; all where none is.

    Raises: typer.BadParameter.
    """
    wanted = _names(workloads) or list(WORKLOADS)
    if unknown := set(wanted) - set(WORKLOADS):
        raise typer.BadParameter(f"unknown: {', '.join(sorted(unknown))}", param_hint="--workloads")
    return [name for name in WORKLOADS if name in wanted or name.removesuffix("x5") in wanted]


def measured(
    entries: Sequence[Entry], names: Sequence[str], rounds: int, environment: Environment, raw: Path | None
) -> Run:
    """Every system in every round; what fails is said, and the others go on."""
    started, failures = time.monotonic(), list[str]()
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {entry.name: {} for entry in entries}
    for number in range(rounds):
        for entry in entries if number == 0 else [entry for entry in entries if not entry.once]:
            say(f"round {number + 1} of {rounds}", entry.name)
            own = [name for name in names if name in entry.workloads]
            for name, figures in zip(own, _tried(entry, own, environment, failures), strict=False):
                found[entry.name].setdefault(name, []).append(figures)
            if raw is not None:
                raw.write_text(json.dumps(found, indent=1))
    return Run(found, rounds, failures, machine.shape(), machine.versions(), time.monotonic() - started)


def written(text: str, run: Run, entries: Sequence[Entry], environment: Environment) -> None:
    """The tables into docs/performance.md, the plot beside it."""
    document = _DOCS / "performance.md"
    document.write_text(placed(document.read_text(), "bench", f"{_PLOT}\n\n{text}"))
    draw(run.found, entries, _DOCS / "performance.svg", environment)
    say("docs", "performance.md and performance.svg are written")


def say(part: str, what: str) -> None:
    """Progress, to standard error."""
    sys.stderr.write(f"→ {part}: {what}\n")
    sys.stderr.flush()


def _tried(
    entry: Entry, names: Sequence[str], environment: Environment, failures: list[str]
) -> Sequence[Mapping[str, Any]]:
    if not names:
        return []
    try:
        return entry.measure([WORKLOADS[name] for name in names], environment, say)
    except NotMeasured as error:
        measured, why = error.measured, str(error)
    except EmbeddedError as error:
        measured, why = [], str(error)
    failures.append(f"{entry.title.strip('*')}, {why}")
    say(entry.name, f"failed: {why}")
    return measured


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    typer.run(bench)
