"""An OTLP/HTTP collector that keeps the spans and the values that it is sent; Prometheus may scrape its counters."""

import gzip
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class CollectedSpan:
    """One exported span."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    links: frozenset[str]
    times_ns: tuple[int, int]


@dataclass(frozen=True)
class CollectedHistogram:
    """One series of a histogram, as it was last sent."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Collector:
    """What was exported so far."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self._spans: list[CollectedSpan] = []
        self._values: dict[tuple[str, str, tuple[tuple[str, str], ...]], int] = {}
        self._histograms: dict[tuple[str, str, tuple[tuple[str, str], ...]], CollectedHistogram] = {}
        self._exemplars: dict[str, set[str]] = {}
        self._bodies: list[bytes] = []
        self._lock = threading.Lock()

    @property
    def env(self) -> dict[str, str]:
        """What a service needs to export here, often."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint,
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }

    def keep(self, body: bytes) -> None:
        """Keep an export as it arrived."""
        with self._lock:
            self._bodies.append(body)

    def bodies(self) -> list[bytes]:
        """All exports, as they arrived."""
        with self._lock:
            return list(self._bodies)

    def take(self, request: ExportTraceServiceRequest) -> None:
        """Keep the spans of one export."""
        found = [
            CollectedSpan(
                service=next(a.value.string_value for a in batch.resource.attributes if a.key == "service.name"),
                name=span.name,
                trace_id=span.trace_id.hex(),
                span_id=span.span_id.hex(),
                parent_id=span.parent_span_id.hex(),
                attributes={a.key: a.value.string_value or a.value.int_value for a in span.attributes},
                links=frozenset(link.trace_id.hex() for link in span.links),
                times_ns=(span.start_time_unix_nano, span.end_time_unix_nano),
            )
            for batch in request.resource_spans
            for scope in batch.scope_spans
            for span in scope.spans
        ]
        with self._lock:
            self._spans += found

    def measure(self, request: ExportMetricsServiceRequest) -> None:
        """Keep the latest value of each series."""
        for batch in request.resource_metrics:
            service = next(a.value.string_value for a in batch.resource.attributes if a.key == "service.name")
            for metric in (metric for scope in batch.scope_metrics for metric in scope.metrics):
                for point in (*metric.sum.data_points, *metric.gauge.data_points):
                    with self._lock:
                        traces = self._exemplars.setdefault(metric.name, set())
                        traces.update(one.trace_id.hex() for one in point.exemplars)
                    named = tuple(sorted((a.key, a.value.string_value) for a in point.attributes))
                    with self._lock:
                        self._values[service, metric.name, named] = int(point.as_int)
                for point in metric.histogram.data_points:
                    named = tuple(sorted((a.key, a.value.string_value) for a in point.attributes))
                    kept = CollectedHistogram(tuple(point.explicit_bounds), tuple(point.bucket_counts), point.sum)
                    with self._lock:
                        self._histograms[service, metric.name, named] = kept

    def value(self, metric: str, **attributes: str) -> int | None:
        """The sum of a metric over all services; None where none has sent it."""
        named = tuple(sorted(attributes.items()))
        with self._lock:
            found = [value for (_, name, at), value in self._values.items() if (name, at) == (metric, named)]
        return sum(found) if found else None

    def total(self, metric: str) -> int:
        """The sum of a metric over all services and attributes."""
        with self._lock:
            return sum(value for (_, name, _), value in self._values.items() if name == metric)

    def histograms(self, metric: str, **attributes: str) -> list[CollectedHistogram]:
        """Of each service that has sent it."""
        named = tuple(sorted(attributes.items()))
        with self._lock:
            return [found for (_, name, at), found in self._histograms.items() if (name, at) == (metric, named)]

    def exemplars(self, metric: str) -> set[str]:
        """The traces that a metric's exemplars name."""
        with self._lock:
            return set(self._exemplars.get(metric, ()))

    def exposition(self) -> str:
        """The counters as a collector shows them to Prometheus."""
        with self._lock:
            values = list(self._values.items())
        lines: list[str] = []
        for (service, name, at), count in values:
            labels = ",".join(f'{key}="{value}"' for key, value in (("job", service), *at))
            lines.append(f"{name.replace('.', '_')}_total{{{labels}}} {count}\n")
        return "".join(lines)

    def of_trace(self, trace_id: str) -> list[CollectedSpan]:
        """The spans of one trace."""
        with self._lock:
            return [span for span in self._spans if span.trace_id == trace_id]

    def everything(self) -> list[CollectedSpan]:
        """All spans."""
        with self._lock:
            return list(self._spans)


@contextmanager
def running_collector() -> Generator[Collector]:
    """Collect for as long as the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.keep(body)
            if self.path == "/v1/metrics":
                collector.measure(ExportMetricsServiceRequest.FromString(body))
            else:
                collector.take(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            body = collector.exposition().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(server.server_port)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
