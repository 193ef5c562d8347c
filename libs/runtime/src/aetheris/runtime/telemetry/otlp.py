"""Spans on their way to a collector: encoded when they end, sent in batches by a thread of the SDK's own.

Queue, pauses, endpoint, headers, certificates and retries are OpenTelemetry's, with its OTEL_… variables. Only the
encoding is ours, from our records straight to OTLP's messages.
"""

from collections.abc import Sequence

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, SpanFlags, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from aetheris.runtime.telemetry.spans import RecordedSpan, Value

_log = structlog.get_logger(__name__)

_LOCAL = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_REMOTE = _LOCAL | SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK


class Batches:
    """A service's spans."""

    def __init__(self, service: str) -> None:
        self._processor = BatchSpanProcessor(_Exporter(service))

    def add(self, span: RecordedSpan) -> None:
        """Take a span that has ended; one that can't be encoded is left out, for what is done counts more."""
        try:
            message = encoded(span)
        except (TypeError, ValueError) as error:
            _log.warning("a span can't be encoded", error=type(error).__name__)
        else:
            self._processor.on_end(_Ended(message))

    def close(self) -> None:
        """Send what is left."""
        self._processor.shutdown()


def encoded(span: RecordedSpan) -> Message:
    """OTLP's message of a span.

    Raises:
        TypeError, ValueError: OTLP has no such value.
    """
    message = Message(
        trace_id=span.place.trace_id,
        span_id=span.place.span_id,
        parent_span_id=span.parent_id,
        name=span.name,
        kind=span.kind,  # pyright: ignore[reportArgumentType] - the numbers are the same
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        flags=_REMOTE if span.parent_id else _LOCAL,
    )
    for link in span.links:
        message.links.add(trace_id=link.trace_id, span_id=link.span_id, flags=_REMOTE)
    for name, value in span.attributes.items():
        _set(message.attributes.add(key=name).value, value)
    if span.failed:
        message.status.code = Status.STATUS_CODE_ERROR
    return message


def _set(into: AnyValue, value: Value) -> None:
    match value:
        case str():
            into.string_value = value
        case bool():
            into.bool_value = value
        case int():
            into.int_value = value
        case float():
            into.double_value = value


class _Ended(ReadableSpan):
    """An encoded span, in the only shape that the SDK's batches take; they ask whether it is sampled, and no more."""

    _context = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    def __init__(self, message: Message) -> None:  # the parent's has thirteen fields that nobody asks for
        self.message = message


class _Exporter(OTLPSpanExporter):
    """Sends encoded spans with the endpoint, the headers, the certificates and the retries of the SDK's exporter."""

    def __init__(self, service: str) -> None:
        super().__init__()
        attributes = Resource.create({"service.name": f"aetheris-{service}"}).attributes
        self._of = ResourceSpans()
        for name, value in attributes.items():
            self._of.resource.attributes.add(key=name).value.string_value = str(value)
        self._of.scope_spans.add().scope.name = "aetheris"

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        request = ExportTraceServiceRequest(resource_spans=[self._of])
        into = request.resource_spans[0].scope_spans[0].spans
        into.extend(one.message for one in spans if isinstance(one, _Ended))
        sent = self._client.export(request.SerializeToString())
        return SpanExportResult.SUCCESS if sent.success else SpanExportResult.FAILURE
