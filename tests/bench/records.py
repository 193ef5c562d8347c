"""What a record costs alone: written, fetched, decoded, folded or audited in a loop of its own, so with warm caches."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from aetheris.cli import streamfile
from aetheris.proofs import Audit
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.job_log import fold_event
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.envelope import Envelope, decode_event, draft
from aetheris.runtime.kafka.batches import pack, unpack

STREAM = Path(__file__).with_name("chain.jsonl")
"""A job of W1 as the log had it: ten steps that ran as one chain, with this tool, exported."""
_LOOPS = 50
_ROUNDS = 40
_PLACE = (Topic.JOBS_EVENTS, 0)


def alone() -> Mapping[str, float]:
    """µs of CPU a record, by what is done to it: the least of many rounds, as whatever else runs only adds."""
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
        made = (
            draft(Topic.JOBS_EVENTS, found.body, key=found.body.job_id, id=found.id, source="aetheris/bench", time="")
            for found in events
        )
        pack(made, 0, 0, 0, 0)

    fetched = _batch(records)

    def fetch() -> None:
        for _ in unpack(fetched, _PLACE, 0):
            pass

    gc.freeze()
    return {work.__name__: _costs_us(work) / len(records) for work in (write, fetch, decode, fold, audit)}


def _batch(records: Sequence[Record]) -> bytes:
    """The records as a broker hands them out, in one batch; its offsets begin at 0."""
    drafts = (Draft(record.topic, record.key or b"", record.value, record.headers) for record in records)
    return pack(drafts, 0, 0, 0, 0)


def _costs_us(work: Callable[[], None]) -> float:
    found: list[float] = []
    for _ in range(_ROUNDS):
        begun_s = time.process_time()
        for _ in range(_LOOPS):
            work()
        found.append((time.process_time() - begun_s) / _LOOPS * 1e6)
    return min(found)
