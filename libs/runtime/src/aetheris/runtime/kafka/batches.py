"""Record batches (magic 2, uncompressed), packed and unpacked by aiokafka's codec in C."""

from collections.abc import Iterable, Iterator
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from aetheris.protocol.base.records import Draft, Record
from aetheris.runtime.log.interface import MAX_GROUP_BYTES, Place

HEADER_BYTES = 61
_MAGIC = 2
_UNCOMPRESSED = 0
_NOT_TRANSACTIONAL = 0


class Damaged(Exception):
    """A batch whose bytes aren't those that were written."""


def pack(drafts: Iterable[Draft], time_ms: int, producer: int, epoch: int, sequence: int) -> bytes:
    """The drafts as one batch of an idempotent producer, whose first record has that sequence number.

    Raises:
        ValueError: they don't fit.
    """
    builder = DefaultRecordBatchBuilder(
        _MAGIC, _UNCOMPRESSED, _NOT_TRANSACTIONAL, producer, epoch, sequence, MAX_GROUP_BYTES
    )
    for at, draft in enumerate(drafts):
        if builder.append(at, time_ms, draft.key, draft.value or None, list(draft.headers)) is None:
            raise ValueError(f"a record batch of {MAX_GROUP_BYTES} bytes is full")
    return bytes(builder.build())


def unpack(raw: bytes, place: Place, position: int) -> Iterator[tuple[list[Record], int]]:
    """By batch: (its records from `position` on, the offset that follows it); a last batch that is cut off is left out.

    Raises:
        Damaged.
    """
    topic, partition = place
    batches: Any = MemoryRecords(raw)  # its stubs allow for what only batches older than magic 2 have
    while (batch := batches.next_batch()) is not None:
        if not batch.validate_crc():
            raise Damaged(f"{topic}[{partition}]: a record batch at {position} or later is damaged")
        if batch.next_offset <= position:
            continue
        records = [
            Record(topic, partition, one.offset, one.timestamp, one.key, tuple(one.headers), one.value or b"")
            for one in (() if batch.is_control_batch else batch)
            if one.offset >= position
        ]
        position = max(position, batch.next_offset)
        yield records, position
