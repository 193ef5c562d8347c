"""A span as it is recorded: its place, its times, what is said of it (docs/tracing.md)."""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from time import time_ns
from types import TracebackType
from typing import NamedTuple, Self

Value = str | int | float | bool
Attributes = Mapping[str, Value]


class SpanKind(IntEnum):
    """A span's role, with OTLP's numbers."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


def sending(topic: str) -> Attributes:
    """What OpenTelemetry's conventions for messaging have of a span that sends to a topic."""
    return {
        "messaging.system": "kafka",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
    }


class SpanContext(NamedTuple):
    """A span, as others name it: the 16 bytes of its trace's id, the 8 of its own."""

    trace_id: bytes
    span_id: bytes


class Span:
    """An open span, until the end of its `with`; of a job that isn't sampled, nothing at all."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it; an exception marks it by its class."""

    @property
    def traceparent(self) -> bytes | None:
        """The header for drafts and calls that this span causes; None if it isn't sampled."""
        return None

    def set(self, name: str, value: Value) -> None:
        """Add an attribute; never arguments, results or secrets."""

    def fail(self, error_class: str) -> None:
        """Mark it as an error, by the error's class alone."""


class RecordedSpan(Span):
    """A span of a job that is sampled; delivered once it has ended."""

    __slots__ = (
        "_deliver",
        "attributes",
        "end_ns",
        "failed",
        "kind",
        "links",
        "name",
        "parent_id",
        "place",
        "start_ns",
    )

    def __init__(
        self,
        deliver: "Deliver",
        name: str,
        place: SpanContext,
        parent_id: bytes,
        *,
        kind: SpanKind,
        links: Sequence[SpanContext],
        attributes: Attributes | None,
        start_ns: int,
    ) -> None:
        self._deliver = deliver
        self.name = name
        self.place = place
        self.parent_id = parent_id
        self.kind = kind
        self.links = links
        self.attributes: dict[str, Value] = {} if attributes is None else dict(attributes)
        self.start_ns = start_ns
        self.end_ns = start_ns
        self.failed = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.fail(kind.__name__)
        self.end(time_ns())

    @property
    def traceparent(self) -> bytes:
        return f"00-{self.place.trace_id.hex()}-{self.place.span_id.hex()}-01".encode()

    def set(self, name: str, value: Value) -> None:
        self.attributes[name] = value

    def fail(self, error_class: str) -> None:
        self.attributes["error.type"] = error_class
        self.failed = True

    def end(self, at_ns: int) -> None:
        """Deliver it, once."""
        self.end_ns = at_ns
        self._deliver(self)


Deliver = Callable[[RecordedSpan], None]
"""Takes a span that has ended; never raises, never waits."""
