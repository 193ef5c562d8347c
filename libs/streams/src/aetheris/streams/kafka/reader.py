"""KafkaReader: places assigned by hand, positions of our own."""

import asyncio
from collections.abc import Collection, Mapping
from ssl import SSLContext

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from aetheris.protocol.records import Record
from aetheris.streams.kafka.clients import close_consumer, open_client
from aetheris.streams.kafka.tls import secured
from aetheris.streams.log import Batch, LogGap, LogUnreachable, Place

LOOK_MS = 2_000
"""Pause between a consumer's looks at what it could fetch, beside those that an event causes."""


class KafkaReader:
    """A consumer without a group."""

    def __init__(self, bootstrap: str, max_wait_s: float, *, tls: SSLContext | None = None) -> None:
        self._tls = tls
        self._bootstrap = bootstrap
        self._max_wait_s = max_wait_s
        self._consumer: AIOKafkaConsumer | None = None
        self._positions: dict[Place, int] = {}
        self._paused: set[Place] = set()
        self._assigned = asyncio.Event()

    async def start(self) -> None:
        """Connect.

        Raises:
            LogUnreachable: no broker answers.
        """
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=max(1, round(self._max_wait_s * 1000)),
            consumer_timeout_ms=LOOK_MS,
            **secured(self._tls),
        )
        await open_client(consumer, self._bootstrap)
        self._consumer = consumer
        self._reassign()

    async def stop(self, deadline_s: float = 5.0) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await close_consumer(consumer, deadline_s)

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read exactly these places from now on."""
        self._positions = dict(positions)
        self._paused.clear()
        self._reassign()

    def add(self, positions: Mapping[Place, int]) -> None:
        """Read these too; the others keep their positions."""
        self._positions.update(positions)
        self._reassign()

    def remove(self, places: Collection[Place]) -> None:
        """Read these no longer."""
        for place in places:
            self._positions.pop(place, None)
            self._paused.discard(place)
        self._reassign()

    def pause(self, places: Collection[Place]) -> None:
        """Fetch nothing from these until `resume`."""
        fresh = [place for place in places if place in self._positions and place not in self._paused]
        self._paused.update(fresh)
        self._connected().pause(*_partitions(fresh))

    def resume(self, places: Collection[Place]) -> None:
        """Fetch from these again."""
        known = [place for place in places if place in self._paused]
        self._paused.difference_update(known)
        self._connected().resume(*_partitions(known))

    async def position(self, place: Place) -> int:
        """The next offset that `poll` will look at (past control records and what compaction took)."""
        try:
            async with asyncio.timeout(5.0):
                seen = await self._connected().position(TopicPartition(*place))
        except (KafkaError, TimeoutError) as error:
            raise LogUnreachable(f"no position in {place[0]}: {type(error).__name__}") from None
        return max(seen, self._positions[place])

    async def poll(self, timeout_s: float, max_records: int = 2000) -> Batch:
        """Records that arrived, or nothing after `timeout_s`.

        Raises:
            LogGap: a place's offset is out of range.
            LogUnreachable: the connection is broken; make a new reader.
        """
        if not self._positions:
            await _within(self._assigned, timeout_s)
            return {}
        try:
            found = await self._connected().getmany(timeout_ms=round(timeout_s * 1000), max_records=max_records)
        except OffsetOutOfRangeError as error:
            raise LogGap(f"out of range: {_named(error)}") from None
        except KafkaError as error:
            raise LogUnreachable(type(error).__name__) from None
        return self._taken(found)

    def _taken(self, found: Mapping[TopicPartition, list[ConsumerRecord[bytes, bytes]]]) -> Batch:
        """Only what is assigned now and is new: a fetch may have been under way when the assignment changed."""
        batch: Batch = {}
        for partition, raw in found.items():
            place = (partition.topic, partition.partition)
            position = self._positions.get(place)
            if position is None:
                continue
            records = [_record(one) for one in raw if one.offset >= position]
            if records:
                batch[place] = records
                self._positions[place] = records[-1].offset + 1
        return batch

    def _reassign(self) -> None:
        if self._positions:
            self._assigned.set()
        else:
            self._assigned.clear()
        if self._consumer is None:
            return
        self._consumer.assign(_partitions(self._positions))
        for place, offset in self._positions.items():
            self._consumer.seek(TopicPartition(*place), offset)
        self._consumer.pause(*_partitions(self._paused))

    def _connected(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            raise LogUnreachable("the reader is not started")
        return self._consumer


def _partitions(places: Collection[Place]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for topic, partition in places]


def _record(raw: ConsumerRecord[bytes, bytes]) -> Record:
    return Record(raw.topic, raw.partition, raw.offset, raw.timestamp, raw.key, tuple(raw.headers), raw.value or b"")


def _named(error: OffsetOutOfRangeError) -> str:
    return ", ".join(f"{place.topic}[{place.partition}]@{offset}" for place, offset in error.args[0].items())


async def _within(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
