"""A service's metrics: counters of what is rare, and plain numbers of its core that are read when somebody asks.

Asked by `/metrics` on the health port (Prometheus pulls), and by OTLP where an endpoint is set; both show the same.
Nothing is made per record: what happens often a core counts by itself (`aetheris.protocol.base.measures`).
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog

from aetheris.protocol.base.measures import OTHER, Histogram
from aetheris.runtime.telemetry.catalogue import Metric
from aetheris.runtime.telemetry.tracer import within

if TYPE_CHECKING:
    from opentelemetry import metrics as api
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader

__all__ = ["Metric", "Metrics", "Reading"]

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
_EXPORTER = "OTEL_METRICS_EXPORTER"
_FLUSH_WITHIN_MS = 5_000
_MOST_SERIES = 200
"""Of a counter that is counted here; what more there is counts as one."""

_log = structlog.get_logger(__name__)

Series = Iterable[tuple[Mapping[str, str], float]]
HistogramSeries = Iterable[tuple[Mapping[str, str], Histogram]]


class NumberSource(Protocol):
    """Labels and values, from any thread; `protocol.base.measures.Counts` is one."""

    def series(self) -> Series:
        """All of them, now."""
        ...


class HistogramSource(Protocol):
    """Labels and histograms, from any thread."""

    def series(self) -> HistogramSeries:
        """All of them, now."""
        ...


class Reading(NamedTuple):
    """A metric as it is now: numbers (of a counter if it grows, else of a gauge), or histograms."""

    metric: Metric
    grows: bool
    numbers: tuple[tuple[Mapping[str, str], float], ...] = ()
    histograms: tuple[tuple[Mapping[str, str], Histogram], ...] = ()


class _Counted:
    """A counter that is counted here."""

    def __init__(self) -> None:
        self._values: dict[tuple[tuple[str, str], ...], int] = {}

    def add(self, amount: int, attributes: Mapping[str, str]) -> None:
        named = tuple(sorted(attributes.items()))
        if named not in self._values and len(self._values) >= _MOST_SERIES:
            named = tuple((name, OTHER) for name, _ in named)
        self._values[named] = self._values.get(named, 0) + amount

    def series(self) -> Series:
        return [(dict(named), count) for named, count in self._values.copy().items()]


class Metrics:
    """A service's meters."""

    def __init__(self, service: str, reader: "MetricReader | None" = None) -> None:
        self._provider: MeterProvider | None = None
        self._counters: dict[Metric, api.Counter] = {}
        self._counted: dict[Metric, _Counted] = {}
        self._numbers: dict[Metric, tuple[NumberSource, bool]] = {}
        self._histograms: dict[Metric, HistogramSource] = {}
        if reader is not None or _exported():
            self._provider = _provider(service, reader or _otlp(self._read_histograms))
            self._meter = self._provider.get_meter("aetheris")
        self.watch(Metric.CPU, time.process_time, grows=True)

    def count(self, metric: Metric, amount: int = 1, *, traceparent: bytes | None = None, **attributes: str) -> None:
        """Something rare has happened; the trace that it happened in becomes an exemplar."""
        self._counted.setdefault(metric, _Counted()).add(amount, attributes)
        if self._provider is None:
            return
        counter = self._counters.get(metric)
        if counter is None:
            counter = self._counters[metric] = self._meter.create_counter(metric.metric, metric.unit, metric.says)
        counter.add(amount, attributes, within(traceparent))

    def watch(self, metric: Metric, ask: Callable[[], float], *, grows: bool = False) -> None:
        """Ask for a value whenever metrics are asked for, from another thread; one that only grows is a counter."""
        self.watch_numbers(metric, _One(ask), grows=grows)

    def watch_numbers(self, metric: Metric, source: NumberSource, *, grows: bool = True) -> None:
        """The same, of one value for each set of labels."""
        self._numbers[metric] = source, grows
        if self._provider is None:
            return

        from opentelemetry.metrics import Observation  # noqa: PLC0415  see _provider

        def observed(_options: "api.CallbackOptions") -> "Iterable[api.Observation]":
            return [Observation(value, labels) for labels, value in source.series()]

        make = self._meter.create_observable_counter if grows else self._meter.create_observable_gauge
        make(metric.metric, [observed], metric.unit, metric.says)

    def watch_histograms(self, metric: Metric, source: HistogramSource) -> None:
        """The same, of histograms."""
        self._histograms[metric] = source

    def read(self) -> Iterator[Reading]:
        """Everything as it is now; what can't be asked is left out, and told."""
        for metric, counted in tuple(self._counted.items()):
            yield Reading(metric, grows=True, numbers=tuple(counted.series()))
        for metric, (source, grows) in tuple(self._numbers.items()):
            try:
                yield Reading(metric, grows, numbers=tuple(source.series()))
            except Exception as error:  # noqa: BLE001 - it concerns this metric alone
                _log.warning("a metric can't be asked for", metric=metric.metric, error=type(error).__name__)
        yield from self._read_histograms()

    def exposition(self) -> bytes:
        """What `/metrics` answers: Prometheus' text format, from any thread."""
        # imported only where somebody asks, as the SDK is
        from aetheris.runtime.telemetry.exposition import exposition  # noqa: PLC0415

        return exposition(self.read())

    async def flush(self) -> None:
        """Export now: for what an operator must know at once."""
        if self._provider is not None:
            await asyncio.to_thread(self._provider.force_flush, _FLUSH_WITHIN_MS)

    def close(self) -> None:
        """Export what is left."""
        if self._provider is not None:
            self._provider.shutdown()

    def _read_histograms(self) -> Iterator[Reading]:
        for metric, source in tuple(self._histograms.items()):
            yield Reading(metric, grows=True, histograms=tuple(source.series()))


class _One:
    """A value without labels."""

    def __init__(self, ask: Callable[[], float]) -> None:
        self._ask = ask

    def series(self) -> Series:
        return (({}, self._ask()),)


def _exported() -> bool:
    """Whether they go anywhere by themselves, as OpenTelemetry's variables say."""
    return os.environ.get(_EXPORTER) != "none" and any(os.environ.get(name) for name in _ENDPOINTS)


def _provider(service: str, reader: "MetricReader") -> "MeterProvider":
    # imported only where it is used: a tenth of a service's start
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    resource = Resource.create({"service.name": f"aetheris-{service}"})
    return MeterProvider([reader], resource=resource, shutdown_on_exit=False)


def _otlp(histograms: Callable[[], Iterator[Reading]]) -> "MetricReader":
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    from aetheris.runtime.telemetry.otlp_metrics import MetricExporter  # noqa: PLC0415

    return PeriodicExportingMetricReader(MetricExporter(histograms))
