"""Records laid into an empty log at the offsets that they had in another one (docs/backup.md).

A producer can't say at which offset a record is to lie. So whoever fills a partition is its only writer, fills what
compaction has left open with records that say nothing, and stops where an answer names another offset.
"""

import asyncio
from collections.abc import Iterable, Mapping
from ssl import SSLContext
from types import TracebackType
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from aetheris.protocol.base.records import Record
from aetheris.runtime.base.prefix import in_kafka
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.kafka.clients import close_consumer, open_client
from aetheris.runtime.log.interface import LogError, LogUnreachable, Place

FILLER_KEY = b"aetheris:gap"
"""Of a record without a value, where a copied log had none: no job, tool, worker or scope has such a name."""
_BATCH_BYTES = 900_000
_ANSWER_MS = 60_000
_CLOSE_S = 5.0


class Misplaced(LogError):
    """A record came to lie at another offset than it had: somebody else writes there. The copy is no good."""

    code = "misplaced"


class CopyWriter:
    """Writes partitions from offset 0 on; use as a context manager.

    Raises:
        LogUnreachable: no broker answers.
    """

    def __init__(self, bootstrap: str, *, tls: SSLContext | None = None, prefix: str = "") -> None:
        self._bootstrap, self._tls, self._prefix = bootstrap, tls, in_kafka(prefix)
        self._producer: AIOKafkaProducer | None = None
        self._ends: dict[Place, int] = {}

    async def __aenter__(self) -> "CopyWriter":
        producer = AIOKafkaProducer(
            **client_options(self._bootstrap, self._tls),
            acks="all",
            enable_idempotence=True,
            max_batch_size=_BATCH_BYTES,
            request_timeout_ms=_ANSWER_MS,
        )
        try:
            await producer.start()
        except (KafkaError, OSError) as error:
            await producer.stop()
            raise LogUnreachable(f"no broker at {self._bootstrap}: {type(error).__name__}") from None
        self._producer = producer
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._producer is not None:
            await self._producer.stop()

    def end(self, place: Place) -> int:
        """The offset that the next record of a place gets, if nobody else writes there."""
        return self._ends.get(place, 0)

    async def write(self, place: Place, records: Iterable[Record], *, nulls: bool = False) -> None:
        """Lay records of a place, in their order, at their offsets; `nulls`: what is empty says that a key is gone.

        Raises:
            Misplaced: somebody else writes there.
            LogUnreachable: the brokers refuse, or don't answer; some of them may lie there.
        """
        batch, first = self._new(), self.end(place)
        at = first
        for record in records:
            if record.offset < at:
                raise Misplaced(f"{place[0]}[{place[1]}]@{record.offset} is to lie where another one does")
            while at <= record.offset:
                filled = at < record.offset
                key, value = (FILLER_KEY, None) if filled else (record.key, record.value)
                value = None if nulls and not value else value
                headers = [] if filled else list(record.headers)
                if batch.append(key=key, value=value, timestamp=record.timestamp_ms, headers=headers) is None:
                    await self._send(place, batch, first)
                    batch, first = self._new(), at
                    continue
                at += 1
        if at > first:
            await self._send(place, batch, first)

    async def fill_up(self, place: Place, until: int, timestamp_ms: int) -> None:
        """Lay fillers up to an offset: where a copied log ends in what was compacted, or begins behind it."""
        if until > self.end(place):
            filler = Record(place[0], place[1], until - 1, timestamp_ms, FILLER_KEY, (), b"")
            await self.write(place, [filler], nulls=True)

    def _new(self) -> Any:
        assert self._producer is not None  # noqa: S101  a context manager's own
        return self._producer.create_batch()

    async def _send(self, place: Place, batch: Any, first: int) -> None:
        assert self._producer is not None  # noqa: S101  a context manager's own
        count = batch.record_count()
        batch.close()
        try:
            sent = await self._producer.send_batch(batch, self._prefix + place[0], partition=place[1])
            lies_at = (await sent).offset
        except KafkaError as error:
            raise LogUnreachable(f"{place[0]}[{place[1]}] can't be written: {type(error).__name__}") from None
        if lies_at != first:
            raise Misplaced(f"{place[0]}[{place[1]}]@{first} came to lie at {lies_at}: somebody else writes there")
        self._ends[place] = first + count


async def set_marks(
    bootstrap: str, marks: Mapping[str, Mapping[Place, int]], *, tls: SSLContext | None = None, prefix: str = ""
) -> None:
    """Have groups that nobody is in read on from these offsets: group → place → offset.

    Raises:
        LogUnreachable: no answer, or somebody is in a group.
    """
    before = in_kafka(prefix)
    for group, of in marks.items():
        consumer = AIOKafkaConsumer(**client_options(bootstrap, tls), group_id=before + group, enable_auto_commit=False)
        await open_client(consumer, bootstrap)
        try:
            offsets = {TopicPartition(before + topic, number): at for (topic, number), at in of.items()}
            consumer.assign(list(offsets))
            async with asyncio.timeout(_ANSWER_MS / 1000):
                await consumer.commit(offsets)
        except (KafkaError, TimeoutError) as error:
            raise LogUnreachable(f"the marks of {group} can't be set: {type(error).__name__}") from None
        finally:
            await close_consumer(consumer, _CLOSE_S)
