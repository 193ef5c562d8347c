"""A job's records, from Kafka itself."""

import asyncio
from collections.abc import AsyncIterator

from aetheris.protocol import events as ev
from aetheris.protocol.envelope import Envelope, NeedsUpgrade, Undecodable, decode_event
from aetheris.protocol.fold import JobState, apply, birth
from aetheris.protocol.records import Record
from aetheris.streams.log import Log, Place
from aetheris.streams.replay import replay


async def records_of(log: Log, job_id: str, place: Place, start: int, end: int) -> AsyncIterator[Record]:
    """The job's records in [start, end) from its first job_created on, in log order.

    Raises:
        LogUnreachable, LogGap.
    """
    key, born = job_id.encode(), False
    async for portion in replay(log, place, start, end):
        for record in portion:
            if record.key == key and record.offset < end:
                born = born or record.header("ce_type") == b"io.aetheris.job_created.v1"
                if born:
                    yield record
        await asyncio.sleep(0)  # a long history must not hold up other requests


def fold_into(state: JobState | None, record: Record) -> JobState | None:
    """The job's state after one more record; None before its birth."""
    try:
        decoded = decode_event(record)
    except Undecodable:
        return state
    if isinstance(decoded, NeedsUpgrade) and state is not None:
        state.needs_upgrade = True
    if not isinstance(decoded, Envelope):
        return state
    if state is not None:
        apply(state, decoded.body, record.offset)
        return state
    return birth(decoded.body, record.offset) if isinstance(decoded.body, ev.JobCreated) else None
