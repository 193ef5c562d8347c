"""Leaders of three brokers that are stopped, woken and killed: readers believe no leader of yesterday."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import suppress

import pytest

from aetheris.protocol.base.records import Draft, Record
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.log.interface import LogUnreachable, Reader
from aetheris.runtime.log.pump import Pump
from tests.testkit.cluster import Cluster, running_cluster

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]

DEADLINE_S = 240.0
ANSWERED_WITHIN_S = 60.0
ROUNDS = 2
WRITERS = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
async def log(cluster: Cluster) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(cluster.address, send_deadline_s=2.0)
    await log.start()
    yield log
    await log.stop()


async def test_a_leader_that_wakes_and_has_less_than_was_read_is_not_believed(cluster: Cluster, log: KafkaLog) -> None:
    """Who has not heard of the new leader asks the old one, which leads for itself until it hears of it too."""
    topic = f"leaders-{uuid.uuid4().hex[:8]}"
    await cluster.create(topic)
    appender = log.appender()
    await appender.start()
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(ROUNDS):
            unaware = KafkaLog(cluster.address)
            await unaware.start()
            await appender.append([(Draft(topic, b"k", b"before"),)])
            before = (await unaware.end_offsets([(topic, 0)]))[topic, 0]
            reader = unaware.reader()
            await reader.start()
            reader.assign({(topic, 0): before - 1})
            while not await reader.poll(1.0):
                pass
            await reader.stop()
            leader = await cluster.leader(topic)
            cluster.stop(leader)
            await cluster.leader(topic, but=leader)
            await appender.append([(Draft(topic, b"k", b"behind"),) for _ in range(100)])
            reader = unaware.reader()
            await reader.start()
            reader.assign({(topic, 0): before + 100})
            reading = asyncio.create_task(_next(reader))
            await asyncio.sleep(0)
            cluster.wake(leader)
            await appender.append([(Draft(topic, b"k", b"last"),)])
            assert await reading == b"last"
            await reader.stop()
            await unaware.stop()
    await appender.stop()


async def _next(reader: Reader) -> bytes:
    while True:
        try:
            for records in (await reader.poll(1.0)).values():
                return records[0].value
        except LogUnreachable:
            continue


async def test_a_pump_follows_leaders_that_are_stopped_and_woken(cluster: Cluster, log: KafkaLog) -> None:
    """From the first append on, whose topic nobody has asked about yet."""
    topic = f"leaders-{uuid.uuid4().hex[:8]}"
    await cluster.create(topic)
    seen: set[bytes] = set()
    acknowledged: list[bytes] = []
    changed = asyncio.Event()
    writing = True

    def sink(_place: tuple[str, int], records: list[Record]) -> None:
        seen.update(record.value for record in records)
        changed.set()

    pump = Pump(log, sink)
    pump.add({(topic, 0): 0})
    appender = log.appender()
    await appender.start()

    async def write(writer: int) -> None:
        turn = 0
        while writing:
            turn += 1
            await appender.append([(Draft(topic, b"k", b"%d/%d" % (writer, turn)),)])
            acknowledged.append(b"%d/%d" % (writer, turn))
            changed.set()

    async def until(holds: Callable[[], bool]) -> None:
        while not holds():
            changed.clear()
            await changed.wait()

    async def written_and_read() -> None:
        count = len(acknowledged) + 100
        await until(lambda: len(acknowledged) >= count)
        last = acknowledged[-1]
        await until(lambda: last in seen)

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        pumping = group.create_task(pump.run())
        writers = [group.create_task(write(number)) for number in range(WRITERS)]
        for _ in range(ROUNDS):
            leader = await cluster.leader(topic)
            cluster.stop(leader)
            await cluster.leader(topic, but=leader)
            await written_and_read()  # so the new leader is ahead of the old
            cluster.wake(leader)
            await written_and_read()
        writing = False
        await asyncio.wait(writers)
        await until(lambda: set(acknowledged) <= seen)
        pumping.cancel()
    await appender.stop()


async def _polled(reader: Reader) -> bytes:
    """The next record's value; a reader that breaks fails the test."""
    while True:
        for records in (await reader.poll(1.0)).values():
            for record in records:
                return record.value


async def test_a_fetch_from_a_leader_that_is_stopped_is_left_for_the_next_leader(
    cluster: Cluster, log: KafkaLog
) -> None:
    """Long before it is given up: the reader is not broken by it, and nobody tells it who leads."""
    topic = f"leaders-{uuid.uuid4().hex[:8]}"
    await cluster.create(topic)
    appender = log.appender()
    await appender.start()
    async with asyncio.timeout(DEADLINE_S):
        for turn in range(ROUNDS):
            alone = KafkaLog(cluster.address)
            await alone.start()
            await appender.append([(Draft(topic, b"k", b"before"),)])
            reader = alone.reader()
            await reader.start()
            reader.assign({(topic, 0): (await alone.end_offsets([(topic, 0)]))[topic, 0] - 1})
            assert await _polled(reader) == b"before"
            reading = asyncio.create_task(_polled(reader))
            await asyncio.sleep(0.2)
            leader = await cluster.leader(topic)
            cluster.stop(leader)
            await cluster.leader(topic, but=leader)
            await appender.append([(Draft(topic, b"k", b"behind %d" % turn),)])
            assert await reading == b"behind %d" % turn
            cluster.wake(leader)
            await reader.stop()
            await alone.stop()
    await appender.stop()


async def test_who_asks_where_a_stopped_leaders_log_ends_is_told_by_the_next(cluster: Cluster) -> None:
    """Long before what a client knows of leaders is five minutes old, and asked for anew."""
    topic = f"leaders-{uuid.uuid4().hex[:8]}"
    await cluster.create(topic)
    for _ in range(ROUNDS):
        asking = KafkaLog(cluster.address)
        await asking.start()
        before = await asking.end_offsets([(topic, 0)])
        leader = await cluster.leader(topic)
        cluster.stop(leader)
        await cluster.leader(topic, but=leader)
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            found = None
            while found is None:
                with suppress(LogUnreachable):
                    found = await asking.end_offsets([(topic, 0)])
        assert found == before
        cluster.wake(leader)
        await asking.stop()
