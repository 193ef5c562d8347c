"""A fact as a downstream system gets it (docs/subscribing.md)."""

from dataclasses import dataclass

from aetheris.protocol.base.records import Record
from aetheris.protocol.messages.envelope import Envelope, NeedsUpgrade, Undecodable, UnknownRecord, decode_event
from aetheris.protocol.messages.events import Event

GROUPS = "aetheris.subscriber."
"""What a subscriber's consumer group begins with: it is never that of a service."""


@dataclass(frozen=True, slots=True)
class Received:
    """A fact, and where it lies: (partition, offset) names the record for ever.

    `id` is repeated where a writer that crashed said it again; `event` is None for what this version can't read.
    """

    partition: int
    offset: int
    id: str
    type: str
    job_id: str
    time: str
    event: Event | None
    value: bytes


def received(record: Record) -> Received:
    """A record of aetheris.jobs.events.v1, whatever it holds."""
    try:
        decoded: Envelope[Event] | UnknownRecord | NeedsUpgrade | None = decode_event(record)
    except Undecodable:
        decoded = None
    kind = _text(record, "ce_type").removeprefix("io.aetheris.")
    return Received(
        partition=record.partition,
        offset=record.offset,
        id=_text(record, "ce_id"),
        type=kind.rpartition(".v")[0] or kind,
        job_id=(record.key or b"").decode(errors="replace"),
        time=_text(record, "ce_time"),
        event=decoded.body if isinstance(decoded, Envelope) else None,
        value=record.value,
    )


def _text(record: Record, header: str) -> str:
    return (record.header(header) or b"").decode(errors="replace")
