"""A job's records and its lines in the log of seals, from Kafka itself: no service is asked (docs/verification.md)."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

from aetheris.cli.letters import reachable
from aetheris.proofs import RawRecord
from aetheris.protocol.records import Record
from aetheris.protocol.topics import Topic
from aetheris.streams.log import Log
from aetheris.streams.partitioning import partition_of
from aetheris.streams.replay import replay


@dataclass
class Found:
    """Records of one job; `leaves` are its lines in the log of seals: leaf → (event_count, root)."""

    records: list[RawRecord] = field(default_factory=list[RawRecord])
    leaves: dict[int, tuple[int, str]] = field(default_factory=dict[int, tuple[int, str]])
    values: set[bytes] = field(default_factory=set[bytes])


async def read_log(bootstrap: str, job_id: str) -> Found:
    """Read the job's whole partition and the log of seals, from their first records.

    Raises:
        CommandError: no broker answers.
    """
    found = Found()
    async with reachable(bootstrap, within_s=None) as log:
        number = partition_of(job_id, await log.partitions(Topic.JOBS_EVENTS))
        async for record in everything(log, Topic.JOBS_EVENTS, number):
            if record.key == job_id.encode():
                found.records.append(raw(record))
        async for record in everything(log, Topic.JOBS_SEALS, 0):
            said = seal_of(record)
            if said.get("job_id") == job_id:
                found.leaves[record.offset] = (said["event_count"], said["root"])
                found.values.add(record.value)
    return found


async def everything(log: Log, topic: Topic, number: int, until: int | None = None) -> AsyncIterator[Record]:
    """A partition's records, from the first to `until`, or to the end that it has now."""
    place = (topic, number)
    begin = (await log.beginning_offsets([place]))[place]
    end = (await log.end_offsets([place]))[place] if until is None else until
    async for records in replay(log, place, begin, end):
        for record in records:
            if record.offset < end:
                yield record


def raw(record: Record) -> RawRecord:
    """A record as the proofs take it."""
    return RawRecord(record.offset, record.key, record.headers, record.value)


def seal_of(record: Record) -> dict[str, Any]:
    """What a line of the log of seals says; {} for what is none."""
    try:
        parsed: Any = json.loads(record.value)
    except ValueError:
        return {}
    said: dict[str, Any] = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
    whole = isinstance(said.get("job_id"), str) and isinstance(said.get("root"), str)
    return said if whole and type(said.get("event_count")) is int else {}
