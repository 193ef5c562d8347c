"""Metrics on their way to a collector: the SDK's, and with them the histograms that cores keep as plain numbers.

The SDK has no histogram that is asked for when it is exported, as it has counters and gauges:
these go with the export of the others.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    MetricExportResult,
    MetricsData,
)
from opentelemetry.sdk.metrics.export import Metric as Exported

from aetheris.protocol.base.measures import Histogram as Measured
from aetheris.runtime.telemetry.metrics import Reading


class MetricExporter(OTLPMetricExporter):
    """The SDK's exporter; `histograms` are asked for with each export."""

    def __init__(self, histograms: Callable[[], Iterator[Reading]]) -> None:
        super().__init__()
        self._histograms = histograms
        self._since_ns = time.time_ns()

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **more: Any
    ) -> MetricExportResult:
        """Send what the SDK has collected, and the histograms; there is always something that the SDK has."""
        first, *others = metrics_data.resource_metrics
        exported = [self._exported(reading) for reading in self._histograms() if reading.histograms]
        scope, *scopes = first.scope_metrics
        scope = replace(scope, metrics=[*scope.metrics, *exported])  # the encoder keeps one of each name
        first = replace(first, scope_metrics=[scope, *scopes])
        return super().export(MetricsData([first, *others]), timeout_millis, **more)

    def _exported(self, reading: Reading) -> Exported:
        metric, now_ns = reading.metric, time.time_ns()
        points = [self._point(labels, histogram, now_ns) for labels, histogram in reading.histograms]
        return Exported(metric.metric, metric.says, metric.unit, Histogram(points, AggregationTemporality.CUMULATIVE))

    def _point(self, labels: Mapping[str, str], histogram: Measured, now_ns: int) -> HistogramDataPoint:
        counts = tuple(histogram.counts)
        return HistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=self._since_ns,
            time_unix_nano=now_ns,
            count=sum(counts),
            sum=histogram.total,
            bucket_counts=counts,
            explicit_bounds=histogram.bounds,
            min=None,  # pyright: ignore[reportArgumentType] - not kept; OTLP has it optional
            max=None,  # pyright: ignore[reportArgumentType]
        )
