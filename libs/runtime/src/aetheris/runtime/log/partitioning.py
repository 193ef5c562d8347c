"""Which partition a key lies in, and what a group weighs: the same for every client and every log."""

from functools import lru_cache

from aiokafka.partitioner import murmur2

from aetheris.protocol.base.records import Draft, Group
from aetheris.runtime.log.interface import MAX_GROUP_BYTES, GroupTooLarge, MixedGroup, Place

_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 32
_HEADER_OVERHEAD = 10


@lru_cache(maxsize=65536)
def partition_of(key: str | bytes, partitions: int) -> int:
    """The partition of a job_id (or any key), as Kafka's default partitioner has it (murmur2)."""
    if partitions == 1:  # of most topics that are no job's
        return 0
    raw = key.encode() if isinstance(key, str) else key
    return (murmur2(raw) & 0x7FFFFFFF) % partitions


def place_of(group: Group, partitions: int) -> Place:
    """Where a group lies.

    Raises:
        MixedGroup: it is empty, or spans topics or partitions.
    """
    if not group:
        raise MixedGroup("a group must lie in one partition, this one is empty")
    first = group[0]
    place = _place_of(first, partitions)
    for draft in group:
        alike = draft.key == first.key and draft.topic == first.topic and draft.partition == first.partition
        if not alike and _place_of(draft, partitions) != place:
            raise MixedGroup("a group must lie in one partition, this one lies in several")
    return place


def weigh(group: Group) -> int:
    """An upper bound of the bytes that a group takes in a record batch.

    Raises:
        GroupTooLarge: more than fits an empty one.
    """
    weight = 0
    for draft in group:
        weight += _RECORD_OVERHEAD + len(draft.key) + len(draft.value) + _HEADER_OVERHEAD * len(draft.headers)
        for name, value in draft.headers:
            weight += len(name) + len(value)
    if weight > MAX_GROUP_BYTES - _BATCH_OVERHEAD:
        raise GroupTooLarge(f"a group of {weight} bytes exceeds {MAX_GROUP_BYTES}: use the blob store")
    return weight


def _place_of(draft: Draft, partitions: int) -> Place:
    return draft.topic, partition_of(draft.key, partitions) if draft.partition is None else draft.partition
