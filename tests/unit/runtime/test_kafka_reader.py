"""The reader's side of a fetch session, against a broker that answers as it is told."""

import asyncio
import io
from collections.abc import Callable
from typing import Any, cast

import pytest
from aiokafka.protocol.fetch import FetchRequest_v10, FetchResponse_v10

from aetheris.protocol.base.records import Draft
from aetheris.runtime.kafka import reader as module
from aetheris.runtime.kafka.batches import pack
from aetheris.runtime.kafka.connection import Disconnected, KafkaConnection
from aetheris.runtime.kafka.reader import KafkaReader
from aetheris.runtime.kafka.wire import Api
from aetheris.runtime.log.interface import Batch, LogGap, LogUnreachable

PLACES = [("t", 0), ("t", 1)]


class FetchedBroker(KafkaConnection):
    """Answers the next fetch with what lies in `answers`; remembers what it was asked."""

    def __init__(self, *answers: bytes | Exception) -> None:
        super().__init__()
        self.answers = list(answers)
        self.asked: list[tuple[int, int, dict[int, int], list[int]]] = []
        """(session, epoch, offset by partition, partitions that were left)."""

    def call(self, api: Api, body: bytes) -> "asyncio.Future[bytes]":
        assert api.key == FetchRequest_v10.API_KEY
        read: Any = FetchRequest_v10.decode(io.BytesIO(body))
        moved = {part[0]: part[2] for _, parts in read.topics for part in parts}
        left = [part for _, parts in read.forgotten_topics_data for part in parts]
        self.asked.append((read.session_id, read.session_epoch, moved, left))
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self.answers:
            reported = self.answers.pop(0)
            if isinstance(reported, Exception):
                answer.set_exception(reported)
            else:
                answer.set_result(reported)
        return answer


class Brokers:
    """One broker after the other: each connection is made to the next."""

    prefix = ""

    def __init__(self, *brokers: FetchedBroker) -> None:
        self.left = list(brokers)
        self.leaderless: set[tuple[str, int]] = set()
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens while somebody asks who leads."""

    async def leaders(self, places: set[tuple[str, int]]) -> dict[tuple[str, int], tuple[str, int]]:
        self.meanwhile()
        return dict.fromkeys(places - self.leaderless, ("broker", 1))

    async def connect(self, _address: tuple[str, int]) -> KafkaConnection:
        if not self.left:
            raise Disconnected("there is none")
        return self.left.pop(0)

    def doubt(self) -> None:
        """Nothing is remembered."""


def found(session: int, *values: tuple[int, int, bytes], error: int = 0) -> bytes:
    """An answer with one record each: (partition, offset, value)."""
    parts = [(part, 0, 0, 0, 0, None, _at(offset, value)) for part, offset, value in values]
    return FetchResponse_v10(0, error, session, [("t", parts)]).encode()


def _at(offset: int, value: bytes) -> bytes:
    batch = pack([Draft("t", b"k", value)], 0, 1, 0, 0)
    return offset.to_bytes(8) + batch[8:]


async def reader(*brokers: FetchedBroker) -> KafkaReader:
    made = KafkaReader(cast("Any", Brokers(*brokers)), 5.0)
    await made.start()
    made.assign(dict.fromkeys(PLACES, 0))
    return made


def values(batch: Batch) -> list[bytes]:
    return [record.value for records in batch.values() for record in records]


async def test_a_fetch_after_the_first_says_only_what_moved() -> None:
    broker = FetchedBroker(found(9, (0, 0, b"a")), found(9, (1, 0, b"b")))
    made = await reader(broker)
    assert values(await made.poll(5.0)) == [b"a"]
    assert values(await made.poll(5.0)) == [b"b"]
    made.remove([PLACES[0]])
    assert await made.poll(0.0) == {}
    assert broker.asked == [(0, 0, {0: 0, 1: 0}, []), (9, 1, {0: 1}, []), (9, 2, {1: 1}, [0])]
    await made.stop()


@pytest.mark.parametrize("error", [70, 71])
async def test_a_session_that_the_broker_forgot_begins_anew(error: int) -> None:
    broker = FetchedBroker(found(9, (0, 0, b"a")), found(0, error=error), found(10, (0, 1, b"b")))
    made = await reader(broker)
    assert values(await made.poll(5.0)) == [b"a"]
    assert values(await made.poll(5.0)) == [b"b"]
    assert broker.asked[-1] == (0, 0, {0: 1, 1: 0}, [])
    await made.stop()


async def test_a_broker_without_room_for_sessions_is_told_all_each_time() -> None:
    broker = FetchedBroker(found(0, (0, 0, b"a")), found(0, (0, 1, b"b")))
    made = await reader(broker)
    assert values(await made.poll(5.0)) == [b"a"]
    assert values(await made.poll(5.0)) == [b"b"]
    assert broker.asked == [(0, 0, {0: 0, 1: 0}, []), (0, 0, {0: 1, 1: 0}, [])]
    await made.stop()


async def test_an_answer_to_what_was_asked_before_an_assignment_counts_for_nothing() -> None:
    broker = FetchedBroker(found(9, (0, 0, b"a"), (1, 0, b"b")), found(9, (1, 3, b"c")))
    made = await reader(broker)
    assert await made.poll(0.0) == {}  # it connects
    while not broker.asked:
        await asyncio.sleep(0)
        made._hear()
        await made._ask()
    made.assign({PLACES[0]: 0, PLACES[1]: 3})
    assert values(await made.poll(5.0)) == [b"a"]
    assert values(await made.poll(5.0)) == [b"c"]
    assert broker.asked[-1] == (9, 1, {0: 1, 1: 3}, [])
    await made.stop()


@pytest.mark.parametrize("leave", [KafkaReader.remove, KafkaReader.pause])
async def test_a_place_that_is_left_while_its_leader_is_asked_for_is_not_fetched(leave: Callable[..., None]) -> None:
    broker = FetchedBroker(found(9, (0, 0, b"a")))
    made = await reader(broker)
    assert values(await made.poll(5.0)) == [b"a"]
    brokers = cast("Brokers", made._brokers)
    brokers.meanwhile = lambda: leave(made, [PLACES[0]])
    made.add({("t", 2): 0})
    await made.poll(0.0)
    brokers.meanwhile = lambda: None
    assert 0 not in broker.asked[-1][2]
    await made.stop()


async def test_a_lost_connection_is_made_again_and_a_missing_one_is_said() -> None:
    made = await reader(
        FetchedBroker(Disconnected("gone")), FetchedBroker(found(9, (0, 0, b"a")), Disconnected("gone"))
    )
    assert values(await made.poll(5.0)) == [b"a"]
    with pytest.raises(LogUnreachable):
        await made.poll(5.0)
    await made.stop()


async def test_a_place_that_nobody_leads_holds_up_no_other_and_is_read_later() -> None:
    brokers = Brokers(FetchedBroker(found(9, (0, 0, b"a"))), FetchedBroker(found(10, (1, 0, b"b"))))
    brokers.leaderless = {PLACES[1]}
    made = KafkaReader(cast("Any", brokers), 5.0)
    await made.start()
    made.assign(dict.fromkeys(PLACES, 0))
    assert values(await made.poll(20.0)) == [b"a"]
    brokers.leaderless = set()
    observed: list[bytes] = []
    async with asyncio.timeout(20):
        while not observed:
            observed = values(await made.poll(0.1))
    assert observed == [b"b"]
    await made.stop()


async def test_a_poll_under_way_ends_when_the_reader_is_stopped_and_connects_no_more() -> None:
    brokers = Brokers(FetchedBroker(), FetchedBroker())
    made = KafkaReader(cast("Any", brokers), 5.0)
    await made.start()
    made.assign(dict.fromkeys(PLACES, 0))
    polling = asyncio.create_task(made.poll(100.0))
    assert not (await asyncio.wait({polling}, timeout=0.2))[0]
    await made.stop()
    with pytest.raises(LogUnreachable):
        await asyncio.wait_for(polling, 20)
    assert len(brokers.left) == 1


async def test_an_offset_that_is_out_of_range_for_a_moment_is_asked_for_again() -> None:
    """Who wakes as a former leader says so until it hears that others have led."""
    yesterday = [FetchedBroker(astray(9)) for _ in range(3)]
    made = await reader(*yesterday, FetchedBroker(found(10, (0, 0, b"a"))))
    assert values(await made.poll(20.0)) == [b"a"]
    await made.stop()


async def test_an_offset_that_stays_out_of_range_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GAP_BELIEVED_S", 0.5)
    made = await reader(*(FetchedBroker(astray(9)) for _ in range(50)))
    begun_s = asyncio.get_running_loop().time()
    with pytest.raises(LogGap):
        await made.poll(20.0)
    assert asyncio.get_running_loop().time() - begun_s >= 0.5
    await made.stop()


def astray(session: int) -> bytes:
    """An answer that has not the offset that was asked for."""
    return FetchResponse_v10(0, 0, session, [("t", [(0, 1, 0, 0, 0, None, b"")])]).encode()
