"""The tables, as Markdown; between markers of docs/performance.md (pure)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.bench.medians import SERVICES, Found, Spread, compared, cpu_us, services_mib, spread
from tests.bench.systems import Entry

_NONE = "–"


@dataclass(frozen=True)
class Run:
    """A run of the whole comparison: what was found, and where; `failures` says what could not be measured, and why."""

    found: Found
    rounds: int
    failures: Sequence[str]
    shape: str
    versions: Mapping[str, str]
    took_s: float


def page(run: Run, entries: Sequence[Entry]) -> str:
    """Everything that the run says."""
    found = run.found
    shown = [entry for entry in entries if found.get(entry.name)]
    parts = [
        f"{run.shape}. Medians of {run.rounds}; it took {run.took_s / 60:.0f} minutes.",
        figures(found, shown),
        *(f"Not measured: {failure}." for failure in run.failures),
        "Aetheris beside the best peer of each line; above 1 Aetheris is ahead:",
        ahead(found, shown),
        "W1's CPU per step, and memory at its end, by process:",
        processes(found, [entry for entry in shown if not entry.peer]),
        "What makes a step durable:",
        table(("system", "durability"), [(entry.title, entry.durability) for entry in shown]),
        f"Versions: {', '.join(f'{name} {version}' for name, version in run.versions.items())}.",
    ]
    return "\n\n".join(parts)


def figures(found: Found, entries: Iterable[Entry]) -> str:
    """A line for each system."""
    head = (
        "system",
        "W1 steps/s (range)",
        "W1 CPU µs/step",
        "W2 step p50 / p99, ms",
        "W2 job of 10, ms",
        "W3 steps/s, 1,000 / 5,000",
        "W4, s",
        "W5 duplicates; kill to first step / to done, s",
        "W6 ms a step, 1,000 / 5,000",
    )
    return table(head, [_line(found, entry) for entry in entries])


def ahead(found: Found, entries: Sequence[Entry]) -> str:
    """How Aetheris stands to its best peer, and how the skeleton that decides nothing does."""
    titles = {entry.name: entry.title for entry in entries}
    peers = [entry.name for entry in entries if entry.peer]
    head = ("figure", "Aetheris", "best peer", "its figure", "times", "aim", "skeleton that owes, times")
    rows = [
        (
            one.figure.what,
            number(one.ours),
            titles[one.best],
            number(one.theirs),
            f"{one.ratio:.2f}",
            f"{one.figure.aim:g}",
            _NONE if one.ratio_at_best is None else f"{one.ratio_at_best:.2f}",
        )
        for one in compared(found, peers)
    ]
    return table(head, rows)


def processes(found: Found, entries: Iterable[Entry]) -> str:
    """Aetheris by process, and its six services together."""
    rows = [row for entry in entries for row in _by_process(found, entry)]
    return table(("system", "process", "CPU µs/step", "RSS MiB", "PSS MiB"), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def placed(document: str, name: str, content: str) -> str:
    """The document with the content between the markers of that name.

    Raises: ValueError, where it has none.
    """
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, _, rest = document.partition(begin)
    _, marker, after = rest.partition(end)
    if not marker:
        raise ValueError(f"no {begin} … {end} to write between")
    return f"{before}{begin}\n{content}\n{end}{after}"


def number(value: float) -> str:
    """Three digits that say something, more where they are whole."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _line(found: Found, entry: Entry) -> Sequence[str]:
    def of(workload: str, *path: str) -> str:
        return _shown(spread(found, entry.name, workload, *path))

    first, done = of("W5", "kill_to_first_step_s"), of("W5", "kill_to_done_s")
    return (
        entry.title,
        _ranged(spread(found, entry.name, "W1", "steps_per_s")),
        _shown(cpu_us(found, entry.name)),
        _joined(of("W2", "between_steps_ms", "p50"), of("W2", "between_steps_ms", "p99")),
        of("W2", "job_ms", "p50"),
        _joined(of("W3", "steps_per_s"), of("W3x5", "steps_per_s")),
        of("W4", "wall_s"),
        f"{_ranged(spread(found, entry.name, 'W5', 'duplicates'))}; {first} / {done}" if done != _NONE else _NONE,
        _joined(of("W6", "ms_per_step"), of("W6x5", "ms_per_step")),
    )


def _by_process(found: Found, entry: Entry) -> Iterable[Sequence[str]]:
    runs = found[entry.name].get("W1", ())
    for process in runs[0]["cpu_us_per_step"] if runs else ():
        kinds = ("cpu_us_per_step", "rss_mib", "pss_mib")
        yield (entry.title, process, *(_shown(spread(found, entry.name, "W1", kind, process)) for kind in kinds))
    if runs and SERVICES[0] in runs[0]["rss_mib"]:
        held = (_shown(services_mib(found, entry.name, kind)) for kind in ("rss_mib", "pss_mib"))
        yield (entry.title, "the six services", _NONE, *held)
    if runs:
        yield (entry.title, "all but the client (`bench`)", _shown(cpu_us(found, entry.name)), _NONE, _NONE)


def _shown(value: Spread | None) -> str:
    return _NONE if value is None else number(value.median)


def _ranged(value: Spread | None) -> str:
    if value is None or value.least == value.largest:
        return _shown(value)
    return f"{number(value.median)} ({number(value.least)}–{number(value.largest)})"


def _joined(*shown: str) -> str:
    return _NONE if set(shown) == {_NONE} else " / ".join(shown)
