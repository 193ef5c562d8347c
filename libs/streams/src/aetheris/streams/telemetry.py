"""Traces: one per idempotency key, decided by the job before anything is made (docs/tracing.md).

A key's trace_id is its first 16 bytes, the id of its root span the 8 bytes that follow: whoever has the key
finds the trace, and every service agrees without a word. A job has a trace of its own, which goes by `job_key`.
"""

import os
import re
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from aetheris.protocol.keys import job_key

Value = str | int | float | bool
Attributes = Mapping[str, Value]

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_TRACEPARENT = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)
_EVERYTHING = 2**32


class Kind(Enum):
    """A span's role."""

    INTERNAL = trace.SpanKind.INTERNAL
    SERVER = trace.SpanKind.SERVER
    CLIENT = trace.SpanKind.CLIENT
    PRODUCER = trace.SpanKind.PRODUCER
    CONSUMER = trace.SpanKind.CONSUMER


class Traced(NamedTuple):
    """What a trace is of: a call, by its idempotency key, or its whole job, by the job's key."""

    job_id: str
    key: str


def whole(job_id: str) -> Traced:
    """The job's own trace."""
    return Traced(job_id, job_key(job_id))


def root_traceparent(key: str) -> bytes:
    """The root context of a key's trace, as a W3C traceparent."""
    return f"00-{key[:32]}-{key[32:48]}-01".encode()


def messaging(topic: str, partition: int, operation: str, offset: int | None = None) -> dict[str, Value]:
    """OpenTelemetry's attributes of a message; `operation` is send, receive or process."""
    found: dict[str, Value] = {
        "messaging.system": "kafka",
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(partition),
    }
    if offset is not None:
        found["messaging.kafka.offset"] = offset
    return found


def within(traceparent: bytes | None) -> Context:
    """The context that a traceparent names; an empty one where it names none."""
    return _within(None if traceparent is None else _context(traceparent))


class Span:
    """An open span; of a job that isn't sampled, nothing at all."""

    __slots__ = ("_span",)

    def __init__(self, span: trace.Span | None) -> None:
        self._span = span

    @property
    def traceparent(self) -> bytes | None:
        """The header for drafts and calls that this span causes; None if it isn't sampled."""
        return None if self._span is None else _traceparent(self._span.get_span_context())

    def set(self, name: str, value: Value) -> None:
        """Add an attribute; never arguments, results or secrets."""
        if self._span is not None:
            self._span.set_attribute(name, value)

    def fail(self, error_class: str) -> None:
        """Mark it as an error, by the error's class alone."""
        if self._span is not None:
            self._span.set_attribute("error.type", error_class)
            self._span.set_status(trace.StatusCode.ERROR)


_NOTHING = Span(None)


class Telemetry:
    """A service's tracer; without an exporter (OTEL_EXPORTER_OTLP_ENDPOINT unset) it makes nothing."""

    def __init__(self, service: str, sample: float, exporter: SpanExporter | None = None) -> None:
        self._threshold = round(sample * _EVERYTHING)
        self._ids = _Ids()
        self._provider: TracerProvider | None = None
        self._tracer: trace.Tracer = trace.NoOpTracer()
        if exporter is not None or os.environ.get(_ENDPOINT):
            resource = Resource.create({"service.name": f"aetheris-{service}"})
            self._provider = TracerProvider(
                sampler=ALWAYS_ON, resource=resource, id_generator=self._ids, shutdown_on_exit=False
            )
            self._provider.add_span_processor(_otlp() if exporter is None else SimpleSpanProcessor(exporter))
            self._tracer = self._provider.get_tracer("aetheris")

    def sampled(self, job_id: str) -> bool:
        """Whether this job's calls are traced: the same answer in every service with the same rate."""
        return self._provider is not None and zlib.crc32(job_id.encode()) < self._threshold

    def traceparent(self, of: Traced) -> bytes | None:
        """The root context of a trace, for drafts; None if its job isn't sampled."""
        return root_traceparent(of.key) if self.sampled(of.job_id) else None

    @contextmanager
    def span(
        self,
        of: Traced,
        name: str,
        *,
        kind: Kind = Kind.INTERNAL,
        parent: bytes | None = None,
        attributes: Attributes | None = None,
        links: Sequence[str] = (),
        root: bool = False,
        always: bool = False,
    ) -> Generator[Span]:
        """A span around what is done now, in a trace; an exception marks it by its class.

        `parent` is a traceparent (of another trace: becomes a link), `links` are keys of other traces, `root`
        makes it the trace's root span, `always` takes it although the job isn't sampled.
        """
        if self._provider is None or not (always or self.sampled(of.job_id)):
            yield _NOTHING
            return
        span = self._start(of.key, name, kind=kind, parent=parent, attributes=attributes, links=links, root=root)
        opened = Span(span)
        try:
            yield opened
        except BaseException as error:
            opened.fail(type(error).__name__)
            raise
        finally:
            span.end()

    def record(
        self,
        of: Traced,
        name: str,
        start_ns: int,
        end_ns: int,
        *,
        kind: Kind = Kind.INTERNAL,
        parent: bytes | None = None,
        attributes: Attributes | None = None,
        links: Sequence[str] = (),
        root: bool = False,
        error: str | None = None,
        always: bool = False,
    ) -> bytes | None:
        """A span made afterwards, times in ns since the epoch; its traceparent, or None if it isn't sampled.

        What fails or is in doubt is recorded `always`; `error` is the error's class.
        """
        if self._provider is None or not (always or self.sampled(of.job_id)):
            return None
        span = self._start(
            of.key, name, kind=kind, parent=parent, attributes=attributes, links=links, root=root, start_ns=start_ns
        )
        if error is not None:
            Span(span).fail(error)
        span.end(end_ns)
        return _traceparent(span.get_span_context())

    def close(self) -> None:
        """Export what is left."""
        if self._provider is not None:
            self._provider.shutdown()

    def _start(
        self,
        key: str,
        name: str,
        *,
        kind: Kind,
        parent: bytes | None,
        attributes: Attributes | None,
        links: Sequence[str],
        root: bool,
        start_ns: int | None = None,
    ) -> trace.Span:
        own = _context(root_traceparent(key))
        came = _context(parent) if parent is not None else None
        foreign = came is not None and own is not None and came.trace_id != own.trace_id
        linked = [context for context in (_context(root_traceparent(one)) for one in links) if context is not None]
        if foreign and came is not None:
            linked.append(came)
        above = own if came is None or foreign else came
        with self._ids.preset(own if root else None):
            return self._tracer.start_span(
                name,
                context=Context() if root else _within(above),
                kind=kind.value,
                attributes=attributes,
                links=[trace.Link(context) for context in linked],
                start_time=start_ns,
                record_exception=False,
                set_status_on_exception=False,
            )


def _otlp() -> SpanProcessor:
    # imported only where it is used: a tenth of a service's start
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    return BatchSpanProcessor(OTLPSpanExporter())


class _Ids(RandomIdGenerator):
    """Random ids, but for root spans: theirs follow from the key."""

    def __init__(self) -> None:
        self._next: ContextVar[trace.SpanContext | None] = ContextVar("next_ids", default=None)

    @contextmanager
    def preset(self, ids: trace.SpanContext | None) -> Generator[None]:
        token = self._next.set(ids)
        try:
            yield
        finally:
            self._next.reset(token)

    def generate_trace_id(self) -> int:
        ids = self._next.get()
        return super().generate_trace_id() if ids is None else ids.trace_id

    def generate_span_id(self) -> int:
        ids = self._next.get()
        return super().generate_span_id() if ids is None else ids.span_id


def _context(traceparent: bytes) -> trace.SpanContext | None:
    """A remote context; None if it isn't one."""
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None:
        return None
    context = trace.SpanContext(int(found[1], 16), int(found[2], 16), is_remote=True, trace_flags=_SAMPLED)
    return context if context.is_valid else None


def _within(above: trace.SpanContext | None) -> Context:
    return Context() if above is None else trace.set_span_in_context(trace.NonRecordingSpan(above), Context())


def _traceparent(context: trace.SpanContext) -> bytes:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-01".encode()
