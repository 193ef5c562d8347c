"""Readings of metrics in Prometheus' text format; the escaping and the layout are prometheus-client's."""

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from aetheris.protocol.base.measures import Histogram
from aetheris.runtime.telemetry.metrics import Reading


def exposition(readings: Iterable[Reading]) -> bytes:
    """The page that Prometheus scrapes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Read(readings))
    return generate_latest(registry)


class _Read(Collector):
    """Readings, in the shape that the library takes."""

    def __init__(self, readings: Iterable[Reading]) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Family]:
        """A family of each metric that has a value."""
        return (_family(reading) for reading in self._readings if reading.numbers or reading.histograms)


def _family(reading: Reading) -> Family:
    name = reading.metric.in_prometheus()
    if reading.histograms:
        family = Family(name, reading.metric.says, "histogram")
        for labels, histogram in reading.histograms:
            _add(family, dict(labels), histogram)
        return family
    family = Family(name, reading.metric.says, "counter" if reading.grows else "gauge")
    for labels, value in reading.numbers:
        family.add_sample(reading.metric.in_prometheus(grows=reading.grows), dict(labels), value)
    return family


def _add(family: Family, labels: dict[str, str], histogram: Histogram) -> None:
    counts, total = tuple(histogram.counts), histogram.total
    for bound, count in zip((*histogram.bounds, float("inf")), accumulate(counts), strict=True):
        family.add_sample(f"{family.name}_bucket", labels | {"le": floatToGoString(bound)}, count)
    family.add_sample(f"{family.name}_count", labels, sum(counts))
    family.add_sample(f"{family.name}_sum", labels, total)
