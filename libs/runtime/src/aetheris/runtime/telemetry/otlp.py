"""Spans on their way to a collector: encoded when they end, sent in batches by a thread of the SDK's own.

Queue, pauses, endpoint, headers, certificates and retries are OpenTelemetry's, with its OTEL_… variables. Only the
encoding is ours, from our records straight to OTLP's bytes.
"""

import os
import struct
from collections.abc import Sequence

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.sdk.environment_variables import OTEL_BSP_MAX_EXPORT_BATCH_SIZE, OTEL_BSP_MAX_QUEUE_SIZE
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from aetheris.runtime.telemetry.otlp_spans import encoded, request
from aetheris.runtime.telemetry.spans import RecordedSpan

_log = structlog.get_logger(__name__)

_BATCH = 4096
"""Spans of one request, some 250 bytes each: an executor makes thousands a second, and a request costs 1 ms."""
_QUEUE = 4 * _BATCH


class Batches:
    """A service's spans."""

    def __init__(self, service: str) -> None:
        sizes = {OTEL_BSP_MAX_QUEUE_SIZE, OTEL_BSP_MAX_EXPORT_BATCH_SIZE} & os.environ.keys()
        queue, batch = (None, None) if sizes else (_QUEUE, _BATCH)
        self._processor = BatchSpanProcessor(_Exporter(service), queue, max_export_batch_size=batch)

    def add(self, span: RecordedSpan) -> None:
        """Take a span that has ended; one that can't be encoded is left out, for what is done counts more."""
        try:
            message = encoded(span)
        except (TypeError, ValueError, struct.error) as error:
            _log.warning("a span can't be encoded", error=type(error).__name__)
        else:
            self._processor.on_end(_Ended(message))

    def close(self) -> None:
        """Send what is left."""
        self._processor.shutdown()


class _Ended(ReadableSpan):
    """An encoded span, in the only shape that the SDK's batches take; they ask whether it is sampled, and no more."""

    _context = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    def __init__(self, message: bytes) -> None:  # the parent's has thirteen fields that nobody asks for
        self.message = message


class _Exporter(OTLPSpanExporter):
    """Sends encoded spans with the endpoint, the headers, the certificates and the retries of the SDK's exporter."""

    def __init__(self, service: str) -> None:
        super().__init__()
        resource = ResourceMessage()
        for name, value in Resource.create({"service.name": f"aetheris-{service}"}).attributes.items():
            resource.attributes.add(key=name).value.string_value = str(value)
        self._resource = resource.SerializeToString()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        messages = [one.message for one in spans if isinstance(one, _Ended)]
        sent = self._client.export(request(self._resource, "aetheris", messages))
        return SpanExportResult.SUCCESS if sent.success else SpanExportResult.FAILURE
