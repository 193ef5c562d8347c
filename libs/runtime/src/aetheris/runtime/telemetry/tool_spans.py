"""What a tool's own OpenTelemetry instrumentation records during a call: spans of the call's trace (docs/tracing.md).

The SDK's provider makes them, below the call's own span; what belongs to no call that is traced is not recorded.
Secrets that this process knows are taken out of them as they are sent.
"""

from collections.abc import Callable, Iterable, Sequence

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

Redact = Callable[[str], str]


def provide(service: str, redact: Redact) -> Callable[[], None]:
    """Be the process's provider, unless a module of tools has set one; what sends the rest at the end."""
    provider = TracerProvider(
        resource=Resource.create({"service.name": f"aetheris-{service}"}),
        sampler=ParentBased(root=ALWAYS_OFF),
        shutdown_on_exit=False,
    )
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return provider.shutdown
    provider.add_span_processor(BatchSpanProcessor(RedactingExporter(redact)))
    trace.set_tracer_provider(provider)
    return provider.shutdown


class RedactingExporter(OTLPSpanExporter):
    """Sends what the SDK's exporter would, without secrets."""

    def __init__(self, redact: Redact) -> None:
        super().__init__()
        self._redact = redact

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        request = encode_spans(spans)
        for of in request.resource_spans:
            for span in (span for scope in of.scope_spans for span in scope.spans):
                span.name = self._redact(span.name)
                span.status.message = self._redact(span.status.message)
                self._clean(span.attributes)
                for event in span.events:
                    event.name = self._redact(event.name)
                    self._clean(event.attributes)
                for link in span.links:
                    self._clean(link.attributes)
        sent = self._client.export(request.SerializeToString())
        return SpanExportResult.SUCCESS if sent.success else SpanExportResult.FAILURE

    def _clean(self, attributes: Iterable[KeyValue]) -> None:
        for attribute in attributes:
            self._cleaned(attribute.value)

    def _cleaned(self, value: AnyValue) -> None:
        match value.WhichOneof("value"):
            case "string_value":
                value.string_value = self._redact(value.string_value)
            case "array_value":
                for one in value.array_value.values:
                    self._cleaned(one)
            case "kvlist_value":
                self._clean(value.kvlist_value.values)
            case _:
                pass
