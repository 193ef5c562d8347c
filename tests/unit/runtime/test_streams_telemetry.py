"""Traces: found by the key alone, cheap where a job isn't sampled."""

import hashlib

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from aetheris.protocol.base.keys import job_key
from aetheris.runtime.telemetry.spans import RecordedSpan, SpanKind
from aetheris.runtime.telemetry.tool_spans import RedactingExporter
from aetheris.runtime.telemetry.tracer import Telemetry, Traced, current, root_traceparent
from tests.testkit.collector import running_collector

KEY = hashlib.sha256(b"k").hexdigest()
CALL = Traced("job-1", KEY)


Spans = list[RecordedSpan]


@pytest.fixture
def spans() -> Spans:
    return []


@pytest.fixture
def telemetry(spans: Spans) -> Telemetry:
    return Telemetry("ledger", 1.0, spans.append)


def test_the_trace_id_is_the_head_of_the_key(telemetry: Telemetry, spans: Spans) -> None:
    with telemetry.span(CALL, "adjudicate", kind=SpanKind.CONSUMER, attributes={"aetheris.run_nodes": 7}):
        pass
    (span,) = spans
    assert _trace(span) == KEY[:32]
    assert span.parent_id.hex() == KEY[32:48]
    assert span.attributes["aetheris.run_nodes"] == 7
    assert 0 < span.start_ns <= span.end_ns


def test_the_root_span_has_the_ids_that_the_others_name(telemetry: Telemetry, spans: Spans) -> None:
    assert telemetry.record(CALL, "request", 1000, 2000, root=True) == root_traceparent(KEY)
    (span,) = spans
    assert (span.parent_id, span.start_ns, span.end_ns) == (b"", 1000, 2000)


def test_a_parent_of_the_same_trace_is_a_parent_and_of_another_a_link(telemetry: Telemetry, spans: Spans) -> None:
    with telemetry.span(CALL, "outer") as outer, telemetry.span(CALL, "inner", parent=outer.traceparent):
        pass
    other = root_traceparent(job_key("job-1"))
    with telemetry.span(CALL, "linked", parent=other, links=[job_key("job-2")]):
        pass
    inner, outer_span, linked = spans
    assert inner.parent_id == outer_span.place.span_id
    assert _trace(linked) == KEY[:32]
    assert linked.parent_id.hex() == KEY[32:48]
    assert [link.trace_id.hex() for link in linked.links] == [job_key("job-2")[:32], job_key("job-1")[:32]]


def test_an_error_is_its_class_never_its_text(telemetry: Telemetry, spans: Spans) -> None:
    with pytest.raises(ValueError, match="secret"), telemetry.span(CALL, "execute_tool refund"):
        raise ValueError("secret")
    (span,) = spans
    assert span.failed
    assert span.attributes == {"error.type": "ValueError"}


def test_what_is_recorded_of_a_job_that_is_not_sampled_lies_below_nothing(spans: Spans) -> None:
    telemetry = Telemetry("ledger", 0.0, spans.append)
    first = telemetry.record(CALL, "execute_tool pay", 1, 2, error="Timeout", always=True)
    with telemetry.span(CALL, "probe pay", parent=first, always=True):
        pass
    cause, probe = spans
    assert (cause.parent_id, probe.parent_id) == (b"", cause.place.span_id)


def test_a_tools_own_spans_lie_below_the_call_and_hold_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = root_traceparent(KEY)
    with running_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        redacting = RedactingExporter(lambda text: text.replace("s3cret", "[secret key@1]"))
        provider = TracerProvider(sampler=ParentBased(root=ALWAYS_OFF), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(redacting))
        tracer = provider.get_tracer("a tool's")
        with (
            current(parent),
            tracer.start_as_current_span("GET s3cret", attributes={"url": ["http://x/?k=s3cret"]}) as own,
        ):
            own.add_event("sent s3cret", {"header": "s3cret"})
        with current(None), tracer.start_as_current_span("of no call that is traced"):
            pass
        provider.shutdown()
        sent = b"".join(collector.bodies())
        [span] = collector.everything()
    assert (span.trace_id, span.parent_id, span.name) == (KEY[:32], KEY[32:48], "GET [secret key@1]")
    assert sent.count(b"[secret key@1]") == 4
    assert b"s3cret" not in sent


def test_what_is_not_sampled_is_never_made_unless_it_must(spans: Spans) -> None:
    telemetry = Telemetry("ledger", 0.0, spans.append)
    with telemetry.span(CALL, "x") as span:
        assert span.traceparent is None
    assert telemetry.record(CALL, "x", 1, 2) is None
    assert spans == []
    assert telemetry.record(CALL, "in doubt", 1, 2, error="Timeout", always=True) is not None
    assert len(spans) == 1


def test_every_service_samples_the_same_jobs_at_the_rate_and_all_their_calls(spans: Spans) -> None:
    jobs = [f"job-{n}" for n in range(4000)]
    ledger, executor = Telemetry("ledger", 0.05, spans.append), Telemetry("executor", 0.05, spans.append)
    chosen = [job for job in jobs if ledger.sampled(job, None)]
    assert chosen == [job for job in jobs if executor.sampled(job, None)]
    assert 120 < len(chosen) < 280
    keys = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(50)]
    assert all(ledger.traceparent(Traced(chosen[0], key)) == root_traceparent(key) for key in keys)


def test_what_a_submission_says_goes_before_the_share(spans: Spans) -> None:
    for share in (0.0, 1.0):
        telemetry = Telemetry("ledger", share, spans.append)
        assert [telemetry.traceparent(CALL._replace(wanted=wanted)) is not None for wanted in (True, False, None)] == [
            True,
            False,
            share == 1.0,
        ]
        assert telemetry.record(CALL._replace(wanted=False), "in doubt", 1, 2, always=True) is not None


def test_without_a_collector_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    telemetry = Telemetry("ledger", 1.0)
    assert telemetry.traceparent(CALL) is None
    with telemetry.span(CALL, "x", always=True) as span:
        span.set("a", 1)
        assert span.traceparent is None
    telemetry.close()


@pytest.mark.parametrize(
    "parent",
    [
        b"00-zz-1-01",
        root_traceparent(KEY).replace(b"00-", b"01-", 1),
        root_traceparent("0" * 64),
        root_traceparent(KEY[:32] + "0" * 32),
        root_traceparent("zz" + KEY[2:]),
        root_traceparent(KEY)[:-1],
        root_traceparent(KEY).replace(b"-01", b"_01"),
    ],
)
def test_a_malformed_parent_is_no_parent(telemetry: Telemetry, spans: Spans, parent: bytes) -> None:
    assert telemetry.record(CALL, "x", 1, 2, parent=parent) is not None
    assert (_trace(spans[0]), spans[0].parent_id.hex(), spans[0].links) == (KEY[:32], KEY[32:48], [])


@pytest.mark.parametrize("key", ["", "a key", "ab" * 10, "\ud800"])
def test_a_key_that_is_none_has_a_trace_all_the_same(telemetry: Telemetry, spans: Spans, key: str) -> None:
    for _ in range(2):
        with telemetry.span(Traced("job-1", key), "audit", parent=root_traceparent(KEY)):
            pass
    first, second = spans
    assert first.place.trace_id == second.place.trace_id
    assert len(first.place.trace_id + first.place.span_id) == 24


def test_a_collector_is_sent_what_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        telemetry = Telemetry("ledger", 1.0)
        unsayable = {"aetheris.node_id": "\ud800"}  # UTF-8 has no such character
        telemetry.record(CALL, "left out", 1, 2, attributes=unsayable)
        attributes = {"text": "é", "count": 7, "share": 0.5, "again": True}
        telemetry.record(CALL, "request", 1000, 2000, attributes=attributes, links=(job_key("job-1"),), root=True)
        telemetry.record(CALL, "judge", 3000, 4000, kind=SpanKind.PRODUCER, error="Timeout")
        telemetry.close()
        [body] = collector.bodies()
    [batch] = ExportTraceServiceRequest.FromString(body).resource_spans
    named = {attribute.key: attribute.value.string_value for attribute in batch.resource.attributes}
    assert named["service.name"] == "aetheris-ledger"
    [scope] = batch.scope_spans
    root, judged = scope.spans
    assert (root.trace_id + root.span_id).hex() == KEY[:48]
    assert (root.name, root.kind, root.parent_span_id, root.flags) == ("request", Span.SPAN_KIND_INTERNAL, b"", 0x100)
    assert (root.start_time_unix_nano, root.end_time_unix_nano) == (1000, 2000)
    values = {one.key: getattr(one.value, one.value.WhichOneof("value") or "") for one in root.attributes}
    assert values == attributes
    assert [type(value) for value in values.values()] == [str, int, float, bool]
    assert [(link.trace_id + link.span_id).hex() for link in root.links] == [job_key("job-1")[:48]]
    assert root.status.code == Status.STATUS_CODE_UNSET
    assert (judged.trace_id + judged.parent_span_id).hex() == KEY[:48]
    assert (judged.kind, judged.status.code, judged.flags) == (
        Span.SPAN_KIND_PRODUCER,
        Status.STATUS_CODE_ERROR,
        0x300,
    )


def _trace(span: RecordedSpan) -> str:
    return span.place.trace_id.hex()
