"""What is sent of a span is what OpenTelemetry's own message would say of it, byte order and omissions aside."""

import struct
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from aetheris.runtime.telemetry import otlp_spans
from aetheris.runtime.telemetry.spans import RecordedSpan, SpanContext, SpanKind, Value

_INT64 = 2**63

_times = st.integers(0, 2**64 - 1)
_ids = st.builds(SpanContext, st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8))
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)
_values = st.one_of(_texts, st.booleans(), st.integers(-_INT64, _INT64 - 1), st.floats(allow_nan=False), st.just(1))


PLACE = SpanContext(b"t" * 16, b"s" * 8)


def span(
    place: SpanContext = PLACE,
    *,
    parent: bytes = b"",
    links: tuple[SpanContext, ...] = (),
    attributes: Mapping[str, Value] | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    name: str = "step",
    start_ns: int = 1,
) -> RecordedSpan:
    return RecordedSpan(
        lambda _span: None, name, place, parent, kind=kind, links=links, attributes=attributes, start_ns=start_ns
    )


def official(one: RecordedSpan) -> Span:
    message = Span(
        trace_id=one.place.trace_id,
        span_id=one.place.span_id,
        parent_span_id=one.parent_id,
        name=one.name,
        kind=one.kind,  # pyright: ignore[reportArgumentType] - the numbers are the same
        start_time_unix_nano=one.start_ns,
        end_time_unix_nano=one.end_ns,
        flags=0x300 if one.parent_id else 0x100,
    )
    for at in one.links:
        message.links.add(trace_id=at.trace_id, span_id=at.span_id, flags=0x300)
    for key, value in one.attributes.items():
        into = message.attributes.add(key=key).value
        field = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}[type(value)]
        setattr(into, field, value)
    if one.failed:
        message.status.code = Status.STATUS_CODE_ERROR
    return message


def ended(one: RecordedSpan, end_ns: int, error: str | None) -> RecordedSpan:
    if error is not None:
        one.fail(error)
    one.end(end_ns)
    return one


_spans = st.builds(
    span,
    _ids,
    parent=st.one_of(st.just(b""), st.binary(min_size=8, max_size=8)),
    links=st.lists(_ids, max_size=3).map(tuple),
    attributes=st.dictionaries(_texts, _values, max_size=6),
    kind=st.sampled_from(SpanKind),
    name=_texts,
    start_ns=_times,
)


@given(st.builds(ended, _spans, _times, st.one_of(st.none(), st.just("Timeout"))))
def test_a_span_reads_as_opentelemetry_would_have_written_it(one: RecordedSpan) -> None:
    assert Span.FromString(otlp_spans.encoded(one)) == official(one)


def test_equal_values_of_other_types_keep_their_types() -> None:
    for value in (1, True, 1.0):
        one = span(attributes={"n": value})
        assert Span.FromString(otlp_spans.encoded(one)) == official(one)


@pytest.mark.parametrize("value", ["\ud800", _INT64, -_INT64 - 1, None, ["a"]])
def test_a_value_that_otlp_has_not_is_refused(value: Value) -> None:
    with pytest.raises((TypeError, ValueError)):
        otlp_spans.encoded(span(attributes={"n": value}))


def test_times_beyond_64_bits_are_refused() -> None:
    with pytest.raises(struct.error):
        otlp_spans.encoded(span(start_ns=2**64))


def test_a_request_holds_all_spans_of_one_resource() -> None:
    resource = Resource()
    resource.attributes.add(key="service.name").value.string_value = "aetheris-ledger"
    spans = [span(name=f"step {number}") for number in range(300)]
    sent = otlp_spans.request(resource.SerializeToString(), "aetheris", [otlp_spans.encoded(one) for one in spans])
    [of] = ExportTraceServiceRequest.FromString(sent).resource_spans
    [scope] = of.scope_spans
    assert (of.resource, scope.scope.name) == (resource, "aetheris")
    assert list(scope.spans) == [official(one) for one in spans]
