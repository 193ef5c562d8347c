"""Traces: one per idempotency key, decided by the key before anything is made (docs/architecture.md, "Tracing")."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum

Attributes = Mapping[str, str | int | float | bool]


class Kind(StrEnum):
    """A span's role (OpenTelemetry's SpanKind)."""

    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class Span:
    """An open span; of a key that isn't sampled, nothing."""

    @property
    def traceparent(self) -> bytes | None:
        """The header for drafts and outgoing calls that this span causes; None if it isn't sampled."""
        ...

    def set(self, **attributes: str | int | float | bool) -> None:
        """Add attributes (dots as double underscores); never arguments, results or secrets."""

    def fail(self, error_class: str) -> None:
        """Mark it as an error, by the class of the error alone."""


class Telemetry:
    """A service's tracer."""

    def __init__(self, service: str, sample: float, endpoint: str | None = None) -> None: ...

    def sampled(self, key: str) -> bool:
        """Whether this idempotency key (or job_id) is traced: the same answer in every service."""
        ...

    @contextmanager
    def span(
        self,
        key: str,
        name: str,
        *,
        kind: Kind = Kind.INTERNAL,
        parent: bytes | None = None,
        attributes: Attributes | None = None,
        always: bool = False,
    ) -> Iterator[Span]:
        """A span around what is done now, in the trace of `key`."""
        ...

    def record(
        self,
        key: str,
        name: str,
        start_ns: int,
        end_ns: int,
        *,
        kind: Kind = Kind.INTERNAL,
        parent: bytes | None = None,
        attributes: Attributes | None = None,
        error: str | None = None,
        always: bool = False,
    ) -> bytes | None:
        """A span made afterwards, times in ns since the epoch; its traceparent, or None if it isn't sampled."""
        ...

    def traceparent(self, key: str) -> bytes | None:
        """The root context of a key's trace, for drafts; None if it isn't sampled."""
        ...

    def close(self) -> None:
        """Export what is left."""
