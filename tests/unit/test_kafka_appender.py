"""What the appender sends again, and under which number, against brokers that answer as they are told."""

import asyncio
import io
from collections.abc import Collection
from typing import Any, cast

import pytest
from aiokafka.protocol.produce import ProduceRequest_v7, ProduceResponse_v7
from aiokafka.protocol.transaction import InitProducerIdResponse_v0
from aiokafka.record.default_records import DefaultRecordBatch

from aetheris.protocol.records import Draft
from aetheris.streams.kafka.appender import KafkaAppender
from aetheris.streams.kafka.connection import Connection, Disconnected
from aetheris.streams.kafka.wire import INIT_PRODUCER_ID, Api

GONE = Disconnected("gone")
NOT_LEADER = 6
TOO_LARGE = 10
OUT_OF_ORDER = 45


class Broker(Connection):
    """Answers each produce with the next of `codes`: an error code for every batch, or an exception."""

    def __init__(self, world: "World") -> None:
        super().__init__()
        self.world = world

    def call(self, api: Api, body: bytes) -> "asyncio.Future[bytes]":
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if api == INIT_PRODUCER_ID:
            self.world.producers += 1
            answer.set_result(InitProducerIdResponse_v0(0, 0, self.world.producers, 0).encode())
            return answer
        read: Any = ProduceRequest_v7.decode(io.BytesIO(body))
        said = self.world.codes.pop(0) if self.world.codes else 0
        if said:
            self.world.refused.set()
        topics: list[Any] = []
        for topic, parts in read.topics:
            self.world.sent += [(topic, number, batch) for number, batch in parts]
            topics.append((topic, [(number, said, 0, -1, 0) for number, _ in parts]))
        if isinstance(said, Exception):
            self.lost = True
            answer.set_exception(said)
        else:
            answer.set_result(ProduceResponse_v7(topics, 0).encode())
        return answer


class World:
    """Brokers, as the appender asks for them, and what was sent to them."""

    def __init__(self, *codes: int | Exception) -> None:
        self.codes = list(codes)
        self.producers = 0
        self.sent: list[tuple[str, int, bytes]] = []
        self.leaderless: set[int] = set()
        self.refused = asyncio.Event()

    async def any(self) -> Connection:
        return Broker(self)

    async def connect(self, _address: tuple[str, int]) -> Connection:
        return Broker(self)

    async def leaders(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], tuple[str, int]]:
        return {place: ("broker", 1) for place in places if place[1] not in self.leaderless}

    async def partitions(self, _topic: str) -> int:
        return 4

    def doubt(self) -> None:
        """Nothing is remembered."""

    async def appender(self) -> KafkaAppender:
        made = KafkaAppender(cast("Any", self), self.partitions)
        await made.start()
        return made

    def numbers(self) -> list[tuple[int, int]]:
        """(producer, first sequence number) of each batch that was sent."""
        batches = (DefaultRecordBatch(raw) for _, _, raw in self.sent)
        return [(batch.producer_id, batch.base_sequence) for batch in batches]


def group(value: bytes, partition: int = 0) -> tuple[Draft, ...]:
    return (Draft("t", b"k", value, (), partition), Draft("t", b"k", value, (), partition))


@pytest.mark.parametrize("said", [GONE, NOT_LEADER])
async def test_what_may_have_been_written_is_sent_again_byte_for_byte(said: int | Exception) -> None:
    world = World(0, said, 0, 0)
    appender = await world.appender()
    await appender.append([group(b"a")])
    second = asyncio.create_task(appender.append([group(b"b")]))
    await world.refused.wait()
    await asyncio.gather(second, appender.append([group(b"c")]))  # which may not slip into the batch of the second
    assert world.sent[1] == world.sent[2]
    assert world.numbers() == [(1, 0), (1, 2), (1, 2), (1, 4)]
    await appender.stop()


@pytest.mark.parametrize("said", [TOO_LARGE, OUT_OF_ORDER])
async def test_after_an_error_that_does_not_pass_a_new_producer_writes_it(said: int) -> None:
    world = World(0, said)
    appender = await world.appender()
    await appender.append([group(b"a")])
    await appender.append([group(b"b")])
    assert world.numbers() == [(1, 0), (1, 2), (2, 0)]
    await appender.stop()


async def test_what_was_written_before_counts_as_written() -> None:
    world = World(GONE, 46)  # a duplicate: the answer was lost, not the batch
    appender = await world.appender()
    await appender.append([group(b"a")])
    assert world.numbers() == [(1, 0), (1, 0)]
    await appender.stop()


async def test_what_is_appended_at_once_goes_in_one_request() -> None:
    world = World()
    appender = await world.appender()
    await appender.append([group(b"warm", number) for number in range(4)])
    world.sent.clear()
    world.codes[:] = [0, TOO_LARGE]  # a second request would be refused
    await asyncio.gather(*(appender.append([group(b"%d" % n, n % 4)]) for n in range(8)))
    assert sorted(number for _, number, _ in world.sent) == [0, 1, 2, 3]
    await appender.stop()


async def test_a_partition_that_nobody_leads_holds_up_no_other() -> None:
    world = World()
    world.leaderless = {1}
    appender = await world.appender()
    waiting = asyncio.create_task(appender.append([group(b"late", 1)]))
    await asyncio.wait_for(appender.append([group(b"a", 0)]), 20)
    assert not waiting.done()
    world.leaderless = set()
    await asyncio.wait_for(waiting, 20)
    assert [number for _, number, _ in world.sent] == [0, 1]
    await appender.stop()
