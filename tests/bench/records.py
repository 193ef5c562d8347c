"""What a record costs alone: written, fetched, decoded, folded or audited in a loop of its own, so with warm caches."""

import gc
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_UNCOMMITTED, PartitionRecords
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from aetheris.cli import streamfile
from aetheris.proofs import Audit
from aetheris.protocol.envelope import Envelope, decode_event, draft
from aetheris.protocol.fold import JobState
from aetheris.protocol.job_log import fold_event
from aetheris.protocol.records import Record
from aetheris.protocol.topics import Topic
from aetheris.streams.kafka.reader import _record as taken

STREAM = Path(__file__).parents[1] / "replay" / "golden" / "0.1" / "a-run.jsonl"
"""A job of five steps that ran as one chain."""
_LOOPS = 50
_ROUNDS = 40
_PLACE = TopicPartition(Topic.JOBS_EVENTS, 0)
_BATCH_BYTES = 900_000


def alone(of: Callable[[Iterable[float]], float] = min) -> Mapping[str, float]:
    """µs of CPU a record, by what is done to it: the least of many rounds, as whatever else runs only adds; or `of`."""
    raws = list(streamfile.read(STREAM).raw())
    records = [Record(Topic.JOBS_EVENTS, 0, raw.offset, 0, raw.key, raw.headers, raw.value) for raw in raws]
    events = [found for record in records if isinstance(found := decode_event(record), Envelope)]

    def decode() -> None:
        for record in records:
            decode_event(record)

    def fold() -> None:
        state: JobState | None = None
        for found in events:
            state, _ = fold_event(state, found.body, found.record.offset)

    def audit() -> None:
        judge = Audit()
        for raw in raws:
            judge.add(raw)

    def write() -> None:
        batch = BatchBuilder(_BATCH_BYTES, 0)
        for found in events:
            made = draft(
                Topic.JOBS_EVENTS, found.body, key=found.body.job_id, id=found.id, source="aetheris/bench", time=""
            )
            batch.append(timestamp=None, key=made.key, value=made.value, headers=list(made.headers))
        batch._build()

    fetched = _batch(records)

    def fetch() -> None:
        unpacked = PartitionRecords(_PLACE, MemoryRecords(fetched), [], 0, None, None, True, READ_UNCOMMITTED)
        for one in list(unpacked):
            taken(one)

    gc.freeze()
    return {work.__name__: of(_costs_us(work)) / len(records) for work in (write, fetch, decode, fold, audit)}


def _batch(records: Sequence[Record]) -> bytes:
    """The records as a broker hands them out, in one batch; its offsets begin at 0."""
    batch = BatchBuilder(_BATCH_BYTES, 0)
    for record in records:
        batch.append(timestamp=None, key=record.key, value=record.value, headers=list(record.headers))
    return bytes(batch._build())


def _costs_us(work: Callable[[], None]) -> list[float]:
    found: list[float] = []
    for _ in range(_ROUNDS):
        begun_s = time.process_time()
        for _ in range(_LOOPS):
            work()
        found.append((time.process_time() - begun_s) / _LOOPS * 1e6)
    return found
