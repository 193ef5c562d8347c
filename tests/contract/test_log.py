"""What the log's seam promises: one suite, on the in-memory log and on a real broker."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.log.interface import (
    MAX_GROUP_BYTES,
    Appender,
    GroupTooLarge,
    Log,
    LogGap,
    LogUnreachable,
    MembershipLost,
    MixedGroup,
    Place,
    Reader,
    Written,
)
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.replay import replay
from aetheris.testkit.memory import MemoryLog

DEADLINE_S = 60.0


@dataclass
class LogBench:
    """A log under test, and topics of its own."""

    log: Log
    create: Callable[[int], Awaitable[str]]
    group: str = field(default_factory=lambda: f"group-{uuid.uuid4().hex[:8]}")


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.real)])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[LogBench]:
    log = KafkaLog(request.getfixturevalue("kafka"), session_timeout_s=6.0) if request.param == "kafka" else MemoryLog()

    async def create(partitions: int) -> str:
        name = f"contract-{uuid.uuid4().hex[:8]}"
        if request.param == "kafka":
            await _create(request.getfixturevalue("kafka"), name, partitions)
        else:
            assert isinstance(log, MemoryLog)
            log.create(name, partitions)
        return name

    await log.start()
    yield LogBench(log, create)
    await log.stop()


@pytest.fixture
async def appender(bench: LogBench) -> AsyncIterator[Appender]:
    appender = bench.log.appender()
    await appender.start()
    yield appender
    await appender.stop()


@pytest.fixture
async def reader(bench: LogBench) -> AsyncIterator[Reader]:
    reader = bench.log.reader()
    await reader.start()
    yield reader
    await reader.stop()


async def test_what_is_appended_is_read_back_byte_for_byte(bench: LogBench, appender: Appender, reader: Reader) -> None:
    topic = await bench.create(1)
    headers = (("ce_id", b"1"), ("traceparent", b"\x00\xff"), ("ce_id", b"2"))
    await appender.append([(Draft(topic, b"job", b'{"a": 1}', headers),)])
    reader.assign({(topic, 0): 0})
    (record,) = await _read(reader, (topic, 0), 1)
    assert (record.key, record.value, record.headers, record.offset) == (b"job", b'{"a": 1}', headers, 0)


async def test_the_key_decides_the_partition_as_for_every_kafka_client(bench: LogBench, appender: Appender) -> None:
    topic = await bench.create(4)
    keys = [f"job-{number}".encode() for number in range(40)]
    await appender.append([(Draft(topic, key, b"{}"),) for key in keys])
    found = {record.key: record.partition for record in await _everything(bench.log, topic, 4)}
    assert found == {key: partition_of(key, 4) for key in keys}
    assert set(found.values()) == {0, 1, 2, 3}


async def test_a_named_partition_is_taken(bench: LogBench, appender: Appender) -> None:
    topic = await bench.create(3)
    await appender.append([(Draft(topic, b"k", b"{}", partition=2),)])
    assert [record.partition for record in await _everything(bench.log, topic, 3)] == [2]


async def test_groups_stay_whole_and_in_order_under_concurrency(bench: LogBench, appender: Appender) -> None:
    topic = await bench.create(2)
    calls = [[_group(topic, writer, turn) for turn in range(5)] for writer in range(30)]
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(appender.append(groups) for groups in calls))
    for partition in range(2):
        written = [record.value.decode() for record in await _partition(bench.log, (topic, partition))]
        triples = [written[at : at + 3] for at in range(0, len(written), 3)]
        assert all(len({value.rsplit("/", 1)[0] for value in triple}) == 1 for triple in triples)
        for writer in range(30):
            turns = [triple[0] for triple in triples if triple[0].startswith(f"{writer}/")]
            assert turns == sorted(turns)


async def test_calls_keep_their_order(bench: LogBench, appender: Appender) -> None:
    topic = await bench.create(1)
    calls = [asyncio.create_task(appender.append([(Draft(topic, b"k", str(n).encode()),)])) for n in range(200)]
    await asyncio.gather(*calls)
    assert [int(record.value) for record in await _partition(bench.log, (topic, 0))] == list(range(200))


async def test_a_group_that_fits_no_batch_is_refused_before_anything_is_written(
    bench: LogBench, appender: Appender
) -> None:
    topic = await bench.create(1)
    half = Draft(topic, b"k", bytes(MAX_GROUP_BYTES // 2))
    with pytest.raises(GroupTooLarge):
        await appender.append([(Draft(topic, b"k", b"{}"),), (half, half)])
    assert await bench.log.end_offsets([(topic, 0)]) == {(topic, 0): 0}


async def test_large_groups_go_out_one_after_the_other(bench: LogBench, appender: Appender) -> None:
    topic = await bench.create(1)
    big = Draft(topic, b"k", bytes(MAX_GROUP_BYTES // 3))
    await appender.append([(big, big), (big,), (big, big)])
    assert await bench.log.end_offsets([(topic, 0)]) == {(topic, 0): 5}


async def test_a_group_lies_in_one_partition(bench: LogBench, appender: Appender) -> None:
    topic = await bench.create(2)
    mixed = (Draft(topic, b"k", b"{}", partition=0), Draft(topic, b"k", b"{}", partition=1))
    with pytest.raises(MixedGroup):
        await appender.append([mixed])
    assert await bench.log.end_offsets([(topic, 0), (topic, 1)]) == {(topic, 0): 0, (topic, 1): 0}


async def test_an_empty_value_is_a_tombstone_and_reads_back_as_empty(bench: LogBench, appender: Appender) -> None:
    topic = await bench.create(1)
    await appender.append([(Draft(topic, b"k", b""),)])
    (record,) = await _partition(bench.log, (topic, 0))
    assert record.value == b""


async def test_a_reader_reads_from_where_it_is_told(bench: LogBench, appender: Appender, reader: Reader) -> None:
    topic = await bench.create(2)
    await _fill(appender, topic, 0, 5)
    await _fill(appender, topic, 1, 5)
    reader.assign({(topic, 0): 3})
    assert [record.offset for record in await _read(reader, (topic, 0), 2)] == [3, 4]
    reader.add({(topic, 1): 1})
    assert [record.offset for record in await _read(reader, (topic, 1), 4)] == [1, 2, 3, 4]
    assert await reader.position((topic, 0)) == 5
    reader.remove([(topic, 1)])
    await _fill(appender, topic, 1, 1)
    await _fill(appender, topic, 0, 1)
    assert [record.offset for record in await _read(reader, (topic, 0), 1)] == [5]


async def test_a_paused_place_waits_and_loses_nothing(bench: LogBench, appender: Appender, reader: Reader) -> None:
    topic = await bench.create(2)
    reader.assign({(topic, 0): 0, (topic, 1): 0})
    reader.pause([(topic, 0)])
    await _fill(appender, topic, 0, 3)
    await _fill(appender, topic, 1, 1)
    assert len(await _read(reader, (topic, 1), 1)) == 1
    reader.resume([(topic, 0)])
    assert [record.offset for record in await _read(reader, (topic, 0), 3)] == [0, 1, 2]


async def test_what_is_added_or_resumed_while_a_poll_waits_is_heard_at_once(
    bench: LogBench, appender: Appender
) -> None:
    topic = await bench.create(3)
    await appender.append([(Draft(topic, b"k", b"%d" % n, (), n),) for n in range(3)])
    reader = bench.log.reader(max_wait_s=120.0)
    await reader.start()
    reader.assign({(topic, 0): 1, (topic, 1): 0})
    reader.pause([(topic, 1)])
    try:
        for change, number in ((reader.add, 2), (lambda _: reader.resume([(topic, 1)]), 1)):
            polling = asyncio.create_task(reader.poll(100.0))
            assert not (await asyncio.wait({polling}, timeout=0.3))[0]
            change({(topic, number): 0})
            found = await asyncio.wait_for(polling, DEADLINE_S)
            assert [record.value for record in found[topic, number]] == [b"%d" % number]
    finally:
        await reader.stop()


async def test_who_appends_is_told_what_readers_get(bench: LogBench, appender: Appender) -> None:
    topic = await bench.create(2)
    reported: list[Written] = []
    appender.report(reported.append)
    headers = (("ce_id", b"1"), ("traceparent", b"\x00\xff"))
    groups = [tuple(Draft(topic, b"job", b"%d" % n, headers, part) for n in range(3)) for part in (0, 1, 1)]
    await asyncio.gather(*(appender.append([group]) for group in groups))
    for number in range(2):
        observed = [record for written in reported if written.place == (topic, number) for record in written.records()]
        assert observed == await _partition(bench.log, (topic, number))
        assert max(written.following for written in reported if written.place == (topic, number)) == len(observed)


async def test_what_is_skipped_is_not_read_and_what_follows_is(bench: LogBench, appender: Appender) -> None:
    topic = await bench.create(2)
    reader = bench.log.reader(max_wait_s=120.0)
    await reader.start()
    reader.assign({(topic, 0): 0})
    reader.skip((topic, 1), 0)  # which it doesn't read
    appender.report(lambda written: reader.skip(written.place, written.following))
    try:
        polling = asyncio.create_task(reader.poll(100.0))  # a fetch waits at the broker, for what will be skipped
        assert not (await asyncio.wait({polling}, timeout=0.3))[0]
        await appender.append([(Draft(topic, b"k", b"known", partition=0),), (Draft(topic, b"k", b"-", partition=1),)])
        appender.report(lambda _written: None)
        await appender.append([(Draft(topic, b"k", b"new", partition=0),)])
        found = await asyncio.wait_for(polling, DEADLINE_S)
        while not found[topic, 0]:
            found = await asyncio.wait_for(reader.poll(100.0), DEADLINE_S)
        assert [(record.offset, record.value) for record in found[topic, 0]] == [(1, b"new")]
        assert await reader.position((topic, 0)) == 2
    finally:
        await reader.stop()


async def test_an_offset_that_the_log_does_not_have_is_a_gap(
    bench: LogBench, appender: Appender, reader: Reader
) -> None:
    topic = await bench.create(1)
    await _fill(appender, topic, 0, 1)
    reader.assign({(topic, 0): 7})
    with pytest.raises(LogGap):
        await _read(reader, (topic, 0), 1)


async def test_a_poll_without_records_returns_in_time(bench: LogBench, reader: Reader) -> None:
    topic = await bench.create(1)
    reader.assign({(topic, 0): 0})
    async with asyncio.timeout(DEADLINE_S):
        assert await reader.poll(0.05) == {}


async def test_offsets_and_counts(bench: LogBench, appender: Appender) -> None:
    topic = await bench.create(3)
    await _fill(appender, topic, 1, 4)
    places = [(topic, number) for number in range(3)]
    assert await bench.log.partitions(topic) == 3
    assert list((await bench.log.beginning_offsets(places)).values()) == [0, 0, 0]
    assert await bench.log.end_offsets(places) == {(topic, 0): 0, (topic, 1): 4, (topic, 2): 0}


async def test_a_member_gets_the_same_numbers_of_every_topic_and_its_offsets_back(bench: LogBench) -> None:
    topics = [await bench.create(4), await bench.create(4)]
    first, reported = await _join(bench, "member-0", topics)
    async with asyncio.timeout(DEADLINE_S):
        assert await reported.assigned.get() == frozenset(range(4))
    assert await first.committed([(topics[0], 0)]) == {(topics[0], 0): None}
    await first.commit({(topics[0], 0): 3, (topics[1], 2): 5})
    await first.stop()
    assert await reported.revoked.get() == frozenset(range(4))
    again, reported = await _join(bench, "member-0", topics)
    async with asyncio.timeout(DEADLINE_S):
        assert await reported.assigned.get() == frozenset(range(4))
    assert await again.committed([(topics[0], 0), (topics[1], 2)]) == {(topics[0], 0): 3, (topics[1], 2): 5}
    await again.stop()


async def test_what_is_not_ours_is_not_committed(bench: LogBench) -> None:
    topic = await bench.create(1)
    member, reported = await _join(bench, "member-0", [topic])
    async with asyncio.timeout(DEADLINE_S):
        await reported.assigned.get()
    with pytest.raises(MembershipLost):
        await member.commit({(topic, 9): 1})
    await member.stop()


async def test_a_stopped_appender_refuses(bench: LogBench) -> None:
    topic = await bench.create(1)
    appender = bench.log.appender()
    await appender.start()
    await appender.append([(Draft(topic, b"k", b"{}"),)])
    await appender.stop()
    with pytest.raises(LogUnreachable):
        await appender.append([(Draft(topic, b"k", b"{}"),)])


@dataclass
class Assignments:
    assigned: "asyncio.Queue[frozenset[int]]" = field(default_factory=asyncio.Queue)
    revoked: "asyncio.Queue[frozenset[int]]" = field(default_factory=asyncio.Queue)


async def _join(bench: LogBench, member: str, topics: Collection[str]):
    reported = Assignments()
    membership = bench.log.membership(bench.group, member, topics)
    await membership.start(reported.assigned.put, reported.revoked.put)
    return membership, reported


def _group(topic: str, writer: int, turn: int) -> Group:
    return tuple(Draft(topic, f"w{writer}".encode(), f"{writer}/{turn}/{at}".encode()) for at in range(3))


async def _fill(appender: Appender, topic: str, partition: int, count: int) -> None:
    await appender.append([(Draft(topic, b"k", str(n).encode(), partition=partition),) for n in range(count)])


async def _read(reader: Reader, place: Place, count: int) -> Sequence[Record]:
    """Exactly `count` records of a place, with a deadline."""
    found: list[Record] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            found += (await reader.poll(0.5)).get(place, [])
    return found


async def _partition(log: Log, place: Place) -> list[Record]:
    end = (await log.end_offsets([place]))[place]
    async with asyncio.timeout(DEADLINE_S):
        return [record async for records in replay(log, place, 0, end) for record in records]


async def _everything(log: Log, topic: str, partitions: int) -> list[Record]:
    return [record for number in range(partitions) for record in await _partition(log, (topic, number))]


async def _create(bootstrap: str, name: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(**client_options(bootstrap))
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, partitions, 1)])
    finally:
        await admin.close()
