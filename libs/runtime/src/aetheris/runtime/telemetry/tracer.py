"""Traces: one per idempotency key, decided by the job before anything is made (docs/tracing.md).

A key's trace_id is its first 16 bytes, the id of its root span the 8 bytes that follow: whoever has the key
finds the trace, and every service agrees without a word. A job has a trace of its own, which goes by `job_key`.
"""

import hashlib
import os
import zlib
from binascii import unhexlify
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from random import getrandbits
from time import time_ns
from typing import NamedTuple

from opentelemetry import context, trace
from opentelemetry.context import Context

from aetheris.protocol.base.keys import job_key
from aetheris.runtime.telemetry.spans import Attributes, Deliver, RecordedSpan, Span, SpanContext, SpanKind

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)
_EVERYTHING = 2**32
_IDS_BYTES = 24
_KEY_LENGTH = 64
"""Hexadecimal digits of SHA-256."""
_KEPT = 1024
"""Places that are remembered: a call's spans come close behind each other."""


class Traced(NamedTuple):
    """What a trace is of: a call, by its idempotency key, or its whole job, by the job's key.

    `wanted` is what the job's submission says: to be traced or not, whatever the share; None: it says nothing.
    """

    job_id: str
    key: str
    wanted: bool | None = None


def whole(job_id: str, wanted: bool | None = None) -> Traced:
    """The job's own trace."""
    return Traced(job_id, job_key(job_id), wanted)


def root_traceparent(key: str) -> bytes:
    """The root context of a key's trace, as a W3C traceparent."""
    return f"00-{key[:32]}-{key[32:48]}-01".encode()


def within(traceparent: bytes | None) -> Context:
    """The context that a traceparent names; an empty one where it names none."""
    place = None if traceparent is None else _place(traceparent)
    if place is None:
        return Context()
    ids = (int.from_bytes(one) for one in place)
    named = trace.SpanContext(*ids, is_remote=True, trace_flags=_SAMPLED)
    return trace.set_span_in_context(trace.NonRecordingSpan(named), Context())


@contextmanager
def current(traceparent: bytes | None) -> Generator[None]:
    """Within the block OpenTelemetry's current span is what a traceparent names: others' spans lie below it."""
    token = context.attach(within(traceparent))
    try:
        yield
    finally:
        context.detach(token)


_NOTHING = Span()


class Telemetry:
    """A service's tracer; without anything that takes its spans (OTEL_EXPORTER_OTLP_ENDPOINT unset) it makes none.

    The spans are records of our own: the SDK's tracer takes more than three times as long to make and to encode one.
    """

    def __init__(self, service: str, sample: float, deliver: Deliver | None = None) -> None:
        self._threshold = round(sample * _EVERYTHING)
        self._deliver = deliver
        self._close: Callable[[], None] | None = None
        if deliver is None and os.environ.get(_ENDPOINT):
            # imported only where it is used: a tenth of a service's start
            from aetheris.runtime.telemetry.otlp import Batches  # noqa: PLC0415

            batches = Batches(service)
            self._deliver, self._close = batches.add, batches.close

    @property
    def on(self) -> bool:
        """Whether anything takes its spans."""
        return self._deliver is not None

    def sampled(self, job_id: str, wanted: bool | None) -> bool:
        """Whether this job's calls are traced: the same answer in every service with the same rate."""
        if self._deliver is None:
            return False
        if wanted is not None:
            return wanted
        return self._threshold == _EVERYTHING or zlib.crc32(job_id.encode()) < self._threshold

    def traceparent(self, subject: Traced) -> bytes | None:
        """The root context of a trace, for drafts; None if its job isn't sampled."""
        return root_traceparent(subject.key) if self.sampled(subject.job_id, subject.wanted) else None

    def span(
        self,
        subject: Traced,
        name: str,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: bytes | None = None,
        attributes: Attributes | None = None,
        links: Sequence[str] = (),
        root: bool = False,
        always: bool = False,
    ) -> Span:
        """A span around what is done now, in a trace; an exception marks it by its class.

        `parent` is a traceparent (of another trace: becomes a link), `links` are keys of other traces, `root`
        makes it the trace's root span, `always` takes it although the job isn't sampled.
        """
        if self._deliver is None:
            return _NOTHING
        sampled = self.sampled(subject.job_id, subject.wanted)
        if not (always or sampled):
            return _NOTHING
        place, above, linked = _placed(subject.key, parent, links, root=root, has_root=sampled)
        return RecordedSpan(
            self._deliver, name, place, above, kind=kind, links=linked, attributes=attributes, start_ns=time_ns()
        )

    def record(
        self,
        subject: Traced,
        name: str,
        start_ns: int,
        end_ns: int,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
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
        if self._deliver is None:
            return None
        sampled = self.sampled(subject.job_id, subject.wanted)
        if not (always or sampled):
            return None
        place, above, linked = _placed(subject.key, parent, links, root=root, has_root=sampled)
        span = RecordedSpan(
            self._deliver, name, place, above, kind=kind, links=linked, attributes=attributes, start_ns=start_ns
        )
        if error is not None:
            span.fail(error)
        span.end(end_ns)
        return span.traceparent

    def close(self) -> None:
        """Export what is left."""
        if self._close is not None:
            self._close()


def _placed(
    key: str, parent: bytes | None, links: Sequence[str], *, root: bool, has_root: bool
) -> tuple[SpanContext, bytes, Sequence[SpanContext]]:
    """Where a span of a key's trace belongs: its own place, what is above it (nothing: empty), and what it links to.

    Nothing is above what is recorded of a job that isn't sampled: its root is not there.
    """
    top = _root(key)
    linked = [_root(one) for one in links]
    above = top.span_id if has_root else b""
    came = None if parent is None else _place(parent)
    if came is not None:
        if came.trace_id == top.trace_id:
            above = came.span_id
        else:
            linked.append(came)
    if root:
        return top, b"", linked
    return SpanContext(top.trace_id, _fresh_span_id()), above, linked


def _fresh_span_id() -> bytes:
    """Names a span, guards nothing: OpenTelemetry's come from the same source, and are never all zero."""
    return (getrandbits(64) or 1).to_bytes(8)


def _root(key: str) -> SpanContext:
    """Where a key's trace begins; what a stranger's record gives for a key, and is none, is hashed."""
    found = _ids_of_key(key) if len(key) == _KEY_LENGTH else None
    if found is None:
        ids = hashlib.sha256(key.encode(errors="surrogatepass")).digest()
        return SpanContext(ids[:16], ids[16:_IDS_BYTES])
    return found


@lru_cache(_KEPT)
def _ids_of_key(key: str) -> SpanContext | None:
    try:
        ids = bytes.fromhex(key)
    except ValueError:
        return None
    return SpanContext(ids[:16], ids[16:_IDS_BYTES]) if len(ids) * 2 == _KEY_LENGTH else None


def _place(traceparent: bytes) -> SpanContext | None:
    """What a traceparent of W3C's version 00 names; None if it isn't one."""
    if len(traceparent) != 55 or traceparent[:3] != b"00-" or traceparent[35:53:17] != b"--":
        return None
    return _ids_of(traceparent)


@lru_cache(_KEPT)
def _ids_of(traceparent: bytes) -> SpanContext | None:
    try:
        trace_id, span_id = unhexlify(traceparent[3:35]), unhexlify(traceparent[36:52])
    except ValueError:
        return None
    return SpanContext(trace_id, span_id) if any(trace_id) and any(span_id) else None
