"""A span as OTLP's protobuf message `Span`, written field by field.

A span of ours has ten of the message's fields, and most of its bytes are those of the span before: protobuf's own
messages take four times as long. Tests read what is written here by the package of those messages.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache

from opentelemetry.proto.trace.v1.trace_pb2 import SpanFlags, Status

from aetheris.runtime.base.varint import varint
from aetheris.runtime.telemetry.spans import RecordedSpan, SpanContext, Value

_KEPT = 4096
"""Names and attributes whose bytes are remembered; a job's spans share most of theirs."""
_LONG = 256
"""Characters of a value that is not worth remembering."""
_INT64 = 2**63
_IS_KNOWN, _IS_REMOTE = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK, SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK

_TRACE_ID, _SPAN_ID, _PARENT = b"\x0a\x10", b"\x12\x08", b"\x22\x08"
_TIMES, _START, _END = struct.Struct("<BQBQ"), 7 << 3 | 1, 8 << 3 | 1
_ERROR = b"\x7a\x02\x18%c" % Status.STATUS_CODE_ERROR
_LOCAL = b"\x85\x01" + struct.pack("<I", _IS_KNOWN)
_REMOTE = b"\x85\x01" + struct.pack("<I", _IS_KNOWN | _IS_REMOTE)
_LINK_REMOTE = b"\x35" + struct.pack("<I", _IS_KNOWN | _IS_REMOTE)


def encoded(span: RecordedSpan) -> bytes:
    """OTLP's message of a span.

    Raises:
        TypeError, ValueError: OTLP has no such value.
    """
    place, parent = span.place, span.parent_id
    above, flags = (_PARENT + parent, _REMOTE) if parent else (b"", _LOCAL)
    return b"".join(
        (
            _TRACE_ID,
            place.trace_id,
            _SPAN_ID,
            place.span_id,
            above,
            _name(span.name),
            b"\x30%c" % span.kind,
            _TIMES.pack(_START, span.start_ns, _END, span.end_ns),
            *[_attribute(name, value) for name, value in span.attributes.items()],
            *[_link(at) for at in span.links],
            _ERROR if span.failed else b"",
            flags,
        )
    )


def request(resource: bytes, scope: str, spans: Iterable[bytes]) -> bytes:
    """OTLP's ExportTraceServiceRequest of one resource (its message's bytes) and one scope."""
    of_scope = _sized(1, _sized(1, scope.encode())) + b"".join([_sized(2, span) for span in spans])
    return _sized(1, _sized(1, resource) + _sized(2, of_scope))


@lru_cache(_KEPT)
def _name(name: str) -> bytes:
    return _sized(5, name.encode())


def _link(at: SpanContext) -> bytes:
    return _sized(13, b"".join((_TRACE_ID, at.trace_id, _SPAN_ID, at.span_id, _LINK_REMOTE)))


def _attribute(name: str, value: Value) -> bytes:
    if type(value) is str and len(value) > _LONG:
        return _key_value(name, value)
    return _kept_key_value(name, value)


def _key_value(name: str, value: Value) -> bytes:
    return _sized(9, _sized(1, name.encode()) + _sized(2, _any(value)))


_kept_key_value = lru_cache(_KEPT, typed=True)(_key_value)


def _any(value: Value) -> bytes:
    match value:
        case str():
            return _sized(1, value.encode())
        case bool():
            return b"\x10%c" % value
        case int():
            if not -_INT64 <= value < _INT64:
                raise ValueError("an integer of more than 64 bits")
            return b"\x18" + varint(value % (2 * _INT64))
        case float():
            return struct.pack("<Bd", 4 << 3 | 1, value)
        case _:
            raise TypeError(type(value).__name__)


def _sized(field: int, content: bytes) -> bytes:
    """A field whose content has its length before it; `field` is below 16."""
    size = len(content)
    head = bytes((field << 3 | 2, size)) if size < 0x80 else b"%c%b" % (field << 3 | 2, varint(size))
    return head + content
