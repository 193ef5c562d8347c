"""Metrics: the same for whoever asks and for where they are sent to; nothing is sent without an endpoint."""

from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

from aetheris.protocol.base.measures import Counts, Histograms
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.runtime.telemetry.tracer import root_traceparent
from tests.testkit.collector import running_collector


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
    told = exported(reader)
    [(used_s, _)] = told.pop("aetheris.process.cpu")
    assert used_s > 0
    assert told == {
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
    del traces["aetheris.process.cpu"]
    assert traces == {"aetheris.invocations.parked": [int(key[:32], 16)], "aetheris.invocations.in_doubt": []}
    metrics.close()


def shown(metrics: Metrics) -> dict[str, float]:
    """Name and labels → value, as a reader of Prometheus' text understands it."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    found = [one for family in families for one in family.samples]
    return {
        one.name + "".join(f" {key}={value}" for key, value in sorted(one.labels.items())): one.value for one in found
    }


def without_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


def test_who_asks_is_told_with_and_without_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    without_endpoint(monkeypatch)
    for reader in (None, InMemoryMetricReader()):
        metrics = Metrics("verifier", reader)
        metrics.watch(Metric.LAG, lambda: 7)
        metrics.watch(Metric.DEAD_LETTERS, lambda: 2, grows=True)
        metrics.watch(Metric.ARCHIVE_LATE, lambda: 3)
        metrics.count(Metric.VIOLATIONS, rule='a "rule"\n')
        metrics.count(Metric.VIOLATIONS, 2, rule='a "rule"\n')
        found = shown(metrics)
        assert found.pop("aetheris_process_cpu_seconds_total") > 0
        assert found == {
            'aetheris_violations_total rule=a "rule"\n': 3,
            "aetheris_consumer_lag": 7,
            "aetheris_dead_letters_total": 2,
            "aetheris_archive_late_seconds": 3,
        }
        metrics.close()


def test_what_cannot_be_asked_is_left_out_and_hides_nothing_else() -> None:
    metrics = Metrics("verifier")
    metrics.watch(Metric.LAG, lambda: 1 // 0)
    metrics.watch(Metric.DEAD_LETTERS, lambda: 2, grows=True)
    assert set(shown(metrics)) == {"aetheris_process_cpu_seconds_total", "aetheris_dead_letters_total"}


def test_a_counter_has_so_many_series_and_no_more() -> None:
    metrics = Metrics("gateway")
    for number in range(1_000):
        metrics.count(Metric.UNSIGNED, topic="jobs.commands", type=f"forged {number}")
    found = {name: value for name, value in shown(metrics).items() if name.startswith("aetheris_messages_unsigned")}
    assert len(found) == 201
    assert found["aetheris_messages_unsigned_total topic=other type=other"] == 800


def test_a_collector_is_sent_what_prometheus_is_told_histograms_and_all(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, waits = Counts("outcome", "tool", bounded=("tool",)), Histograms("tool", (1.0, 10.0))
    calls.add("success", "pay", amount=3)
    for value in (0.5, 1.0, 2.0, 11.0, -1.0):
        waits.add("pay", value)
    with running_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        metrics = Metrics("verifier")
        metrics.watch_numbers(Metric.LIMITED, calls)
        metrics.watch_histograms(Metric.PARQUET_LATE, waits)
        found = shown(metrics)
        metrics.close()
        assert collector.value("aetheris.requests.limited", outcome="success", tool="pay") == 3
        assert found["aetheris_requests_limited_total outcome=success tool=pay"] == 3
        [sent] = collector.histograms("aetheris.parquet.late", tool="pay")
        assert (sent.bounds, sent.counts, sent.total) == ((1.0, 10.0), (3, 1, 1), 14.5)
        assert [found[f"aetheris_parquet_late_seconds_bucket le={le} tool=pay"] for le in ("1.0", "10.0", "+Inf")] == [
            3,
            4,
            5,
        ]
        assert found["aetheris_parquet_late_seconds_sum tool=pay"] == 14.5


def test_none_are_sent_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
        metrics = Metrics("verifier")
        metrics.close()
        assert collector.bodies() == []


async def test_without_an_endpoint_nothing_is_asked_or_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    without_endpoint(monkeypatch)
    metrics = Metrics("verifier")
    metrics.count(Metric.VIOLATIONS, rule="second_success")
    metrics.watch(Metric.LAG, lambda: 1 // 0)
    await metrics.flush()
    metrics.close()
