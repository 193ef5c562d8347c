"""Traces: found by the key alone, cheap where a job isn't sampled."""

import hashlib

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from aetheris.protocol.keys import job_key
from aetheris.streams.telemetry import Kind, Telemetry, Traced, messaging, root_traceparent

KEY = hashlib.sha256(b"k").hexdigest()
CALL = Traced("job-1", KEY)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def telemetry(exporter: InMemorySpanExporter) -> Telemetry:
    return Telemetry("ledger", 1.0, exporter)


def test_the_trace_id_is_the_head_of_the_key(telemetry: Telemetry, exporter: InMemorySpanExporter) -> None:
    with telemetry.span(CALL, "adjudicate", kind=Kind.CONSUMER, attributes=messaging("t", 1, "process", 7)):
        pass
    (span,) = exporter.get_finished_spans()
    assert _trace(span) == KEY[:32]
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == KEY[32:48]
    assert span.resource.attributes["service.name"] == "aetheris-ledger"
    assert (span.attributes or {})["messaging.kafka.offset"] == 7


def test_the_root_span_has_the_ids_that_the_others_name(telemetry: Telemetry, exporter: InMemorySpanExporter) -> None:
    assert telemetry.record(CALL, "request", 1000, 2000, root=True) == root_traceparent(KEY)
    (span,) = exporter.get_finished_spans()
    assert (span.parent, span.start_time, span.end_time) == (None, 1000, 2000)


def test_a_parent_of_the_same_trace_is_a_parent_and_of_another_a_link(
    telemetry: Telemetry, exporter: InMemorySpanExporter
) -> None:
    with telemetry.span(CALL, "outer") as outer, telemetry.span(CALL, "inner", parent=outer.traceparent):
        pass
    other = root_traceparent(job_key("job-1"))
    with telemetry.span(CALL, "linked", parent=other, links=[job_key("job-2")]):
        pass
    inner, outer_span, linked = exporter.get_finished_spans()
    above = outer_span.get_span_context()
    assert inner.parent is not None
    assert above is not None
    assert inner.parent.span_id == above.span_id
    assert _trace(linked) == KEY[:32]
    assert [f"{link.context.trace_id:032x}" for link in linked.links] == [job_key("job-2")[:32], job_key("job-1")[:32]]


def test_an_error_is_its_class_never_its_text(telemetry: Telemetry, exporter: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="secret"), telemetry.span(CALL, "execute_tool refund"):
        raise ValueError("secret")
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "ValueError"
    assert "secret" not in span.to_json()


def test_what_is_not_sampled_is_never_made_unless_it_must(exporter: InMemorySpanExporter) -> None:
    telemetry = Telemetry("ledger", 0.0, exporter)
    with telemetry.span(CALL, "x") as span:
        assert span.traceparent is None
    assert telemetry.record(CALL, "x", 1, 2) is None
    assert exporter.get_finished_spans() == ()
    assert telemetry.record(CALL, "in doubt", 1, 2, error="Timeout", always=True) is not None
    assert len(exporter.get_finished_spans()) == 1


def test_every_service_samples_the_same_jobs_at_the_rate_and_all_their_calls(exporter: InMemorySpanExporter) -> None:
    jobs = [f"job-{n}" for n in range(4000)]
    ledger, executor = Telemetry("ledger", 0.05, exporter), Telemetry("executor", 0.05, exporter)
    chosen = [job for job in jobs if ledger.sampled(job)]
    assert chosen == [job for job in jobs if executor.sampled(job)]
    assert 120 < len(chosen) < 280
    keys = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(50)]
    assert all(ledger.traceparent(Traced(chosen[0], key)) == root_traceparent(key) for key in keys)


def test_without_an_exporter_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    telemetry = Telemetry("ledger", 1.0)
    assert telemetry.traceparent(CALL) is None
    with telemetry.span(CALL, "x", always=True) as span:
        span.set("a", 1)
        assert span.traceparent is None
    telemetry.close()


def test_a_malformed_parent_is_no_parent(telemetry: Telemetry, exporter: InMemorySpanExporter) -> None:
    assert telemetry.record(CALL, "x", 1, 2, parent=b"00-zz-1-01") is not None
    assert _trace(exporter.get_finished_spans()[0]) == KEY[:32]


def _trace(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}"
