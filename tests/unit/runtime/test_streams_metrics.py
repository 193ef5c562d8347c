"""Metrics: nothing without an endpoint, what is counted and asked for with one."""

from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.runtime.telemetry.tracer import root_traceparent


def exported(reader: InMemoryMetricReader) -> dict[str, Any]:
    data = reader.get_metrics_data()
    assert data is not None
    metrics = [metric for batch in data.resource_metrics for scope in batch.scope_metrics for metric in scope.metrics]
    points: list[tuple[str, Any]] = [(metric.name, point) for metric in metrics for point in metric.data.data_points]
    return {name: [(point.value, dict(point.attributes))] for name, point in points}


def test_counts_and_gauges_have_the_names_of_the_catalogue() -> None:
    reader, behind = InMemoryMetricReader(), [7]
    metrics = Metrics("verifier", reader)
    metrics.watch(Metric.LAG, lambda: behind[0])
    metrics.watch(Metric.DEAD_LETTERS, lambda: 2, grows=True)
    for _ in range(2):
        metrics.count(Metric.VIOLATIONS, rule="second_success")
    assert exported(reader) == {
        "aetheris.consumer.lag": [(7, {})],
        "aetheris.dead_letters": [(2, {})],
        "aetheris.violations": [(2, {"rule": "second_success"})],
    }
    metrics.close()


def test_a_count_has_its_trace_as_an_exemplar() -> None:
    reader = InMemoryMetricReader()
    metrics = Metrics("verifier", reader)
    key = "ab" * 32
    metrics.count(Metric.PARKED, traceparent=root_traceparent(key))
    metrics.count(Metric.IN_DOUBT)
    data = reader.get_metrics_data()
    assert data is not None
    [scope] = data.resource_metrics[0].scope_metrics
    traces = {one.name: [x.trace_id for x in one.data.data_points[0].exemplars] for one in scope.metrics}
    assert traces == {"aetheris.invocations.parked": [int(key[:32], 16)], "aetheris.invocations.in_doubt": []}
    metrics.close()


async def test_without_an_endpoint_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    metrics = Metrics("verifier")
    metrics.count(Metric.VIOLATIONS, rule="second_success")
    metrics.watch(Metric.LAG, lambda: 1 // 0)
    await metrics.flush()
    metrics.close()
