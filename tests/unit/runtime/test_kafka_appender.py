"""What the appender sends again, and under which number, against brokers that answer as they are told."""

import asyncio
import io
from collections.abc import Callable, Collection
from typing import Any, cast

import pytest
from aiokafka.protocol.produce import ProduceRequest_v7, ProduceResponse_v7
from aiokafka.protocol.transaction import InitProducerIdResponse_v0
from aiokafka.record.default_records import DefaultRecordBatch

from aetheris.protocol.base.records import Draft
from aetheris.runtime.kafka.appender import KafkaAppender
from aetheris.runtime.kafka.connection import Disconnected, KafkaConnection
from aetheris.runtime.kafka.wire import INIT_PRODUCER_ID, Api
from aetheris.runtime.log.interface import AppendRefused, LogUnreachable

GONE = Disconnected("gone")
UNKNOWN = -1
NOT_LEADER = 6
TOO_LARGE = 10
NOT_ALLOWED = 29
INVALID_TIMESTAMP = 32
OUT_OF_ORDER = 45


class AppendingBroker(KafkaConnection):
    """Answers each produce with the next of `codes`: an error code for every batch, or an exception."""

    def __init__(self, brokers: "ProducersBrokers") -> None:
        super().__init__()
        self.brokers = brokers

    def call(self, api: Api, body: bytes) -> "asyncio.Future[bytes]":
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if api == INIT_PRODUCER_ID:
            self.brokers.producers += 1
            answer.set_result(InitProducerIdResponse_v0(0, 0, self.brokers.producers, 0).encode())
            return answer
        read: Any = ProduceRequest_v7.decode(io.BytesIO(body))
        reported = self.brokers.codes.pop(0) if self.brokers.codes else 0
        if self.brokers.judge is not None:
            reported = 0
        if reported:
            self.brokers.refused.set()
        topics: list[Any] = []
        for topic, parts in read.topics:
            self.brokers.sent += [(topic, number, batch) for number, batch in parts]
            topics.append(
                (topic, [(number, self.brokers.verdict(number, batch, reported), 0, -1, 0) for number, batch in parts])
            )
        if isinstance(reported, Exception):
            self.lost = True
            answer.set_exception(reported)
        else:
            answer.set_result(ProduceResponse_v7(topics, 0).encode())
        return answer


class ProducersBrokers:
    """ProducersBrokers, as the appender asks for them, and what was sent to them."""

    prefix = ""

    def __init__(self, *codes: int | Exception) -> None:
        self.codes = list(codes)
        self.producers = 0
        self.sent: list[tuple[str, int, bytes]] = []
        self.written: list[tuple[int, bytes]] = []
        self.leaderless: set[int] = set()
        self.refused = asyncio.Event()
        self.judge: Callable[[int, list[bytes]], int] | None = None
        """Says for a partition and the values of a batch what is answered, instead of `codes`."""
        self.wall_s = 1_000.0

    def verdict(self, number: int, batch: bytes, reported: int | Exception) -> Any:
        if self.judge is None:
            return reported
        code = self.judge(number, values_of(batch))
        if not code:
            self.written += [(number, value) for value in values_of(batch)]
        return code

    async def any(self) -> KafkaConnection:
        return AppendingBroker(self)

    async def connect(self, _address: tuple[str, int]) -> KafkaConnection:
        return AppendingBroker(self)

    async def leaders(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], tuple[str, int]]:
        return {place: ("broker", 1) for place in places if place[1] not in self.leaderless}

    async def partitions(self, _topic: str) -> int:
        return 4

    def doubt(self) -> None:
        """Nothing is remembered."""

    async def appender(self) -> KafkaAppender:
        made = KafkaAppender(cast("Any", self), self.partitions, wall=lambda: self.wall_s)
        await made.start()
        return made

    def numbers(self) -> list[tuple[int, int]]:
        """(producer, first sequence number) of each batch that was sent."""
        batches = (DefaultRecordBatch(raw) for _, _, raw in self.sent)
        return [(batch.producer_id, batch.base_sequence) for batch in batches]


def values_of(batch: bytes) -> list[bytes]:
    return [record.value or b"" for record in DefaultRecordBatch(batch)]


def group(value: bytes, partition: int = 0) -> tuple[Draft, ...]:
    return (Draft("t", b"k", value, (), partition), Draft("t", b"k", value, (), partition))


@pytest.mark.parametrize("reported", [GONE, NOT_LEADER])
async def test_what_may_have_been_written_is_sent_again_byte_for_byte(reported: int | Exception) -> None:
    brokers = ProducersBrokers(0, reported, 0, 0)
    appender = await brokers.appender()
    await appender.append([group(b"a")])
    second = asyncio.create_task(appender.append([group(b"b")]))
    await brokers.refused.wait()
    await asyncio.gather(second, appender.append([group(b"c")]))  # which may not slip into the batch of the second
    assert brokers.sent[1] == brokers.sent[2]
    assert brokers.numbers() == [(1, 0), (1, 2), (1, 2), (1, 4)]
    await appender.stop()


@pytest.mark.parametrize("reported", [UNKNOWN, OUT_OF_ORDER])
async def test_after_an_error_that_does_not_pass_a_new_producer_writes_it(reported: int) -> None:
    brokers = ProducersBrokers(0, reported)
    appender = await brokers.appender()
    await appender.append([group(b"a")])
    await appender.append([group(b"b")])
    assert brokers.numbers() == [(1, 0), (1, 2), (2, 0)]
    await appender.stop()


async def test_what_was_written_before_counts_as_written() -> None:
    brokers = ProducersBrokers(GONE, 46)  # a duplicate: the answer was lost, not the batch
    appender = await brokers.appender()
    await appender.append([group(b"a")])
    assert brokers.numbers() == [(1, 0), (1, 0)]
    await appender.stop()


async def test_what_is_appended_at_once_goes_in_one_request() -> None:
    brokers = ProducersBrokers()
    appender = await brokers.appender()
    await appender.append([group(b"warm", number) for number in range(4)])
    brokers.sent.clear()
    brokers.codes[:] = [0, OUT_OF_ORDER]  # a second request would be refused
    await asyncio.gather(*(appender.append([group(b"%d" % n, n % 4)]) for n in range(8)))
    assert sorted(number for _, number, _ in brokers.sent) == [0, 1, 2, 3]
    await appender.stop()


async def test_a_partition_that_nobody_leads_holds_up_no_other() -> None:
    brokers = ProducersBrokers()
    brokers.leaderless = {1}
    appender = await brokers.appender()
    waiting = asyncio.create_task(appender.append([group(b"late", 1)]))
    await asyncio.wait_for(appender.append([group(b"a", 0)]), 20)
    assert not waiting.done()
    brokers.leaderless = set()
    await asyncio.wait_for(waiting, 20)
    assert [number for _, number, _ in brokers.sent] == [0, 1]
    await appender.stop()


@pytest.mark.parametrize("code", [10, 18, 87])
async def test_a_group_that_is_refused_is_found_and_fails_alone_and_nothing_is_written_twice(code: int) -> None:
    brokers = ProducersBrokers()
    appender = await brokers.appender()
    await appender.append([group(b"warm", number) for number in range(4)])
    brokers.sent.clear()
    brokers.judge = lambda _number, values: code if b"bad" in values else 0
    ordinary = [asyncio.create_task(appender.append([group(b"%d" % n, n % 4)])) for n in range(40)]
    with pytest.raises(AppendRefused) as refused:
        await asyncio.wait_for(appender.append([group(b"before", 1), group(b"bad", 1), group(b"behind", 1)]), 20)
    later = [asyncio.create_task(appender.append([group(b"%d" % n, n % 4)])) for n in range(40, 80)]
    await asyncio.wait_for(asyncio.gather(*ordinary, *later), 20)
    assert [one.group for one in refused.value.refusals] == [group(b"bad", 1)]
    assert sorted(brokers.written) == sorted(
        2 * [*((n % 4, b"%d" % n) for n in range(80)), (1, b"before"), (1, b"behind")]  # two records a group
    )
    assert brokers.producers == 1
    assert len([batch for _, number, batch in brokers.sent if number == 1]) < 20
    await appender.stop()


async def test_one_partition_that_takes_nothing_makes_no_copy_in_the_others_and_is_told() -> None:
    brokers = ProducersBrokers()
    appender = await brokers.appender()
    await appender.append([group(b"warm", number) for number in range(4)])
    allowed = False
    brokers.judge = lambda number, _values: NOT_ALLOWED if number == 1 and not allowed else 0
    refused = asyncio.create_task(appender.append([group(b"refused", 1)]))
    for turn in range(200):
        await asyncio.wait_for(appender.append([group(b"%d" % turn, number) for number in (0, 2, 3)]), 20)
    assert dict(appender.refusals()) == {"t": "TopicAuthorizationFailedError"}
    assert not refused.done()
    assert len(brokers.written) == 200 * 3 * 2
    assert brokers.producers == 1
    allowed = True
    await asyncio.wait_for(refused, 20)
    assert not appender.refusals()
    assert brokers.written[-2:] == [(1, b"refused"), (1, b"refused")]
    await appender.stop()


async def test_a_clock_that_is_wrong_is_waited_for_and_what_was_refused_bears_the_right_time() -> None:
    brokers = ProducersBrokers()
    appender = await brokers.appender()
    brokers.wall_s = 10_000.0
    brokers.codes[:] = [INVALID_TIMESTAMP]
    waiting = asyncio.create_task(appender.append([group(b"a")]))
    await brokers.refused.wait()
    brokers.wall_s = 2_000.0
    await asyncio.wait_for(waiting, 20)
    assert [DefaultRecordBatch(raw).first_timestamp for _, _, raw in brokers.sent] == [10_000_000, 2_000_000]
    await appender.stop()


async def test_a_broker_that_never_has_a_good_answer_is_asked_ever_more_rarely() -> None:
    brokers = ProducersBrokers()
    appender = await brokers.appender()
    await appender.append([group(b"warm", number) for number in range(4)])
    brokers.judge = lambda number, _values: UNKNOWN if number == 1 else 0
    doubtful = asyncio.create_task(appender.append([group(b"doubtful", 1)]))
    loop = asyncio.get_running_loop()
    until_s = loop.time() + 2.0
    turn = 0
    while loop.time() < until_s:
        turn += 1
        await appender.append([group(b"%d" % turn, 0)])
    assert [value for number, value in brokers.written if number == 0] == [
        b"%d" % (n // 2) for n in range(2, 2 * turn + 2)
    ]
    assert 2 <= len([number for _, number, _ in brokers.sent if number == 1]) - 1 <= 6
    doubtful.cancel()
    brokers.judge = None
    await appender.stop()


class Silence:
    """Nobody says how many partitions a topic has until `over`."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.over = False

    async def partitions(self, _topic: str) -> int:
        self.asked.set()
        if not self.over:
            raise LogUnreachable("no answer")
        return 4


async def test_an_append_asks_about_its_topic_until_somebody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    world, silence = ProducersBrokers(), Silence()
    monkeypatch.setattr(world, "partitions", silence.partitions)
    appender = await world.appender()
    appending = asyncio.create_task(appender.append([group(b"a")]))
    await silence.asked.wait()
    assert appender.stuck_s() > 0, "the process that waits says so"
    silence.over = True
    await appending
    assert [number for _, number, _ in world.sent] == [0]
    assert appender.stuck_s() == 0
    await appender.stop()


async def test_an_append_that_still_asks_ends_with_its_appender(monkeypatch: pytest.MonkeyPatch) -> None:
    world, silence = ProducersBrokers(), Silence()
    monkeypatch.setattr(world, "partitions", silence.partitions)
    appender = await world.appender()
    appending = asyncio.create_task(appender.append([group(b"a")]))
    await silence.asked.wait()
    await appender.stop()
    with pytest.raises(LogUnreachable):
        await appending
    assert world.sent == []
