"""What a core counts and times, as plain numbers: read when somebody asks for metrics (docs/metrics.md), never pushed.

Names that come out of the log are bounded: each label shows the busiest by name, and all others as one.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

OTHER = "other"
"""What all names are called that are not among the busiest."""
MOST_NAMES = 20
"""That a label shows."""
_MOST_REMEMBERED = 1_000
"""Names beyond those whose counts are kept; then they begin anew."""
_LONGEST_NAME = 100

LATENCY_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
"""Bounds of what machines wait for, in seconds."""
PATIENCE_S = (1.0, 10.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 259_200.0, 604_800.0)
"""Bounds of what people are waited for, in seconds."""

Labels = tuple[str, ...]


class Busiest:
    """Which names are shown: the busiest, as far as this process has seen; what it shows never counts backwards."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._shown: dict[str, int] = {}
        self._rest: dict[str, int] = {}
        self.outdone: list[str] = []
        """Names that others have taken the place of: their series are to be forgotten."""

    def is_shown(self, name: str) -> bool:
        """Whether it is shown as itself, as most are; then it counts once more."""
        seen = self._shown.get(name)
        if seen is None:
            return False
        self._shown[name] = seen + 1
        return True

    def label(self, name: str) -> str:
        """What it is shown as, once more: itself, or OTHER."""
        if self.is_shown(name):
            return name
        if name == OTHER or len(name) > _LONGEST_NAME or not name.isprintable():
            return OTHER
        if len(self._shown) < self._most:
            self._shown[name] = 1
            return name
        return self._beside(name)

    def _beside(self, name: str) -> str:
        """One that is twice as busy as the least busy of those that are shown takes its place."""
        if len(self._rest) >= _MOST_REMEMBERED and name not in self._rest:
            self._rest.clear()
        seen = self._rest[name] = self._rest.get(name, 0) + 1
        if seen & (seen - 1):  # looked at seldom: whenever it has doubled
            return OTHER
        least = min(self._shown, key=self._shown.__getitem__)
        if seen <= 2 * self._shown[least]:
            return OTHER
        del self._shown[least], self._rest[name]
        self._shown[name] = seen
        self.outdone.append(least)
        return name


class Counts:
    """A counter with labels, of which `bounded` may have any value and the others few."""

    def __init__(self, *labels: str, bounded: Sequence[str] = (), most: int = MOST_NAMES) -> None:
        self.labels = labels
        self._busiest = [(labels.index(name), Busiest(most)) for name in bounded]
        self._values: dict[Labels, int] = {}

    def add(self, *values: str, amount: int = 1) -> None:
        """So many more, with these values of the labels in their order."""
        for place, busiest in self._busiest:
            if not busiest.is_shown(values[place]):
                values = self._bounded(values, place, busiest)
        self._values[values] = self._values.get(values, 0) + amount

    def series(self) -> Iterator[tuple[Mapping[str, str], int]]:
        """Labels and value of each; from any thread."""
        for values, count in self._values.copy().items():
            yield dict(zip(self.labels, values, strict=True)), count

    def _bounded(self, values: Labels, place: int, busiest: Busiest) -> Labels:
        label = busiest.label(values[place])
        if busiest.outdone:
            gone = set(busiest.outdone)
            self._values = {one: count for one, count in self._values.items() if one[place] not in gone}
            busiest.outdone.clear()
        return values if label == values[place] else (*values[:place], label, *values[place + 1 :])


class Histogram:
    """How many values lie at or below each bound: `counts` has one more, for those above the last."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_S) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """One more value; one below zero, of two clocks that disagree, counts as zero."""
        value = max(value, 0.0)
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def series(self) -> Iterator[tuple[Mapping[str, str], "Histogram"]]:
        """Itself, without labels."""
        yield {}, self


class Histograms:
    """A histogram for each of the busiest names of a label, and one for the others."""

    def __init__(self, label: str, bounds: Sequence[float] = LATENCY_S, most: int = MOST_NAMES) -> None:
        self._label = label
        self._bounds = bounds
        self._busiest = Busiest(most)
        self._shown: dict[str, Histogram] = {}

    def add(self, name: str, value: float) -> None:
        """One more value of a name."""
        shown = self._busiest.label(name)
        for outdone in self._busiest.outdone:
            self._shown.pop(outdone, None)
        self._busiest.outdone.clear()
        histogram = self._shown.get(shown)
        if histogram is None:
            histogram = self._shown[shown] = Histogram(self._bounds)
        histogram.add(value)

    def series(self) -> Iterator[tuple[Mapping[str, str], Histogram]]:
        """Label and histogram of each; from any thread."""
        for name, histogram in self._shown.copy().items():
            yield {self._label: name}, histogram
