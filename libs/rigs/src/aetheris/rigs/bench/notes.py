"""What the lines that the tool wrote say: when it was entered, for which step of which job.

A line is `<monotonic ns> <anything>:<job>:<step>[:<attempt>]`. The file is the external system: what it has twice
happened twice.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True)
class Note:
    """One call of the tool."""

    at_ns: int
    job: str
    step: str


class Tail:
    """Counts the lines that come to a file from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = path.stat().st_size if path.exists() else 0
        self.lines = 0

    def look(self) -> int:
        """The lines that have come so far."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
            self._read += len(new)
            self.lines += new.count(b"\n")
        return self.lines


def notes_of(lines: Iterable[str], jobs: Collection[str]) -> list[Note]:
    """The calls for these jobs, in the order in which they were made."""
    wanted = frozenset(jobs)
    return sorted((note for note in _parsed(lines) if note.job in wanted), key=lambda note: note.at_ns)


def gaps_ms(notes: Iterable[Note]) -> list[float]:
    """Milliseconds from one entry of the tool to the next, within each job."""
    calls: dict[str, list[int]] = {}
    for note in notes:
        calls.setdefault(note.job, []).append(note.at_ns)
    return [(after - before) / 1e6 for times in calls.values() for before, after in pairwise(times)]


def repeats(notes: Iterable[Note]) -> int:
    """How many calls were made of a step that had been called before, whatever the attempt."""
    return sum(count - 1 for count in Counter((note.job, note.step) for note in notes).values())


def first_after(notes: Iterable[Note], at_ns: int) -> int | None:
    """When the tool was first entered after a moment."""
    return next((note.at_ns for note in notes if note.at_ns > at_ns), None)


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The value that `percent` of them don't exceed (nearest rank); None where there are none."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1] if ordered else None


def _parsed(lines: Iterable[str]) -> Iterator[Note]:
    for line in lines:
        at, _, key = line.strip().partition(" ")
        _, job, step = key.split(":")[:3]
        yield Note(int(at), job, step)
