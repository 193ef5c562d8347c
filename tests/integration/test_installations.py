"""Two installations on one broker and one Redis, by prefix: neither reads, writes or owns what is the other's."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka.admin import check_broker, delete_below, ensure_topics, marks
from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.log.interface import Log
from aetheris.runtime.log.replay import replay
from aetheris.runtime.redis.client import Redis
from aetheris.runtime.redis.effects import EffectEntry, EffectStore
from aetheris.runtime.redis.leases import Lease, Leases
from aetheris.runtime.redis.quarantines import Quarantined, QuarantineStore
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

GROUP = "aetheris.planner"
PARTITIONS = 2
EVENTS = (str(Topic.JOBS_EVENTS), 0)
NOBODYS = Quarantined("t", "x", "2999-01-01T00:00:00Z", 3)


@pytest.fixture
async def logs(kafka: str) -> AsyncGenerator[dict[str, KafkaLog]]:
    found = {prefix: KafkaLog(kafka, prefix=prefix) for prefix in (fresh("one"), fresh("other"))}
    for prefix, log in found.items():
        await ensure_topics(kafka, PARTITIONS, prefix=prefix)
        await check_broker(kafka, PARTITIONS, dev=True, prefix=prefix)
        await log.start()
    yield found
    for log in found.values():
        await log.stop()


async def written(log: Log, *values: bytes) -> None:
    appender = log.appender()
    await appender.start()
    await appender.append([(Draft(Topic.JOBS_EVENTS, b"same-job", value, partition=0),) for value in values])
    await appender.stop()


async def held(log: Log) -> list[tuple[str, bytes]]:
    begin, end = (await log.beginning_offsets([EVENTS]))[EVENTS], (await log.end_offsets([EVENTS]))[EVENTS]
    return [(one.topic, one.value) async for records in replay(log, EVENTS, begin, end) for one in records]


async def test_each_reads_what_it_wrote_by_the_logical_name(logs: dict[str, KafkaLog], kafka: str) -> None:
    one, other = logs.values()
    await written(one, b"a", b"b")
    await written(other, b"c")
    assert await held(one) == [(Topic.JOBS_EVENTS, b"a"), (Topic.JOBS_EVENTS, b"b")]
    assert await held(other) == [(Topic.JOBS_EVENTS, b"c")]
    assert await one.partitions(Topic.JOBS_EVENTS) == PARTITIONS
    await delete_below(kafka, {EVENTS: 1}, prefix=next(iter(logs)))
    assert await held(one) == [(Topic.JOBS_EVENTS, b"b")]
    assert await held(other) == [(Topic.JOBS_EVENTS, b"c")]


async def test_groups_of_one_name_are_two(logs: dict[str, KafkaLog], kafka: str) -> None:
    members = [log.membership(GROUP, "planner-0", (Topic.JOBS_EVENTS,)) for log in logs.values()]
    owned = [set[int](), set[int]()]

    async def revoked(_numbers: frozenset[int]) -> None:
        """They go when the test ends."""

    for member, numbers in zip(members, owned, strict=True):

        async def assigned(found: frozenset[int], numbers: set[int] = numbers) -> None:
            numbers |= found

        await member.start(assigned, revoked)
    await asyncio.to_thread(until, lambda: all(numbers == set(range(PARTITIONS)) for numbers in owned), 60)
    for log in logs.values():
        assert set((await log.members(GROUP)).values()) == {"planner-0"}
        assert (await log.attendants(GROUP)).keys() == {"planner-0"}
    await members[0].commit({EVENTS: 7})
    assert await members[0].committed([EVENTS]) == {EVENTS: 7}
    assert await members[1].committed([EVENTS]) == {EVENTS: None}
    found = [await marks(kafka, Topic.JOBS_EVENTS, PARTITIONS, prefix=prefix) for prefix in logs]
    assert found == [{GROUP: {0: 7}}, {}]
    for member in members:
        await member.stop(leave=True)


async def test_the_same_key_is_leased_and_has_its_effect_in_both(valkey_url: str) -> None:
    key, job = fresh("key"), fresh("job")
    names = [fresh("one"), fresh("other")]
    clients = [Redis(valkey_url, prefix=name) for name in names]
    leases, effects = [Leases(one) for one in clients], [EffectStore(one, 60) for one in clients]
    shown = [QuarantineStore(one) for one in clients]
    await leases[0].grant([Lease(key, "mine", 60)])
    assert [await one.held([key]) for one in leases] == [[True], [False]]
    assert await leases[1].extend([Lease(key, "yours", 60)]) == [True]
    assert await leases[0].extend([Lease(key, "mine", 60)]) == [True]
    await effects[0].put([EffectEntry(job, key, "i", b"1")])
    assert [await one.find([(job, key)]) for one in effects] == [[{"i": b"1"}], [{}]]
    await shown[0].show(0, [NOBODYS])
    assert [await one.shown([0], "2000") for one in shown] == [[NOBODYS], []]
    assert [await one.data_lost() for one in leases] == [True, True]
    assert [await one.data_lost() for one in leases] == [False, False]
    assert sorted(clients[0].named(one) for one in ("a", "b")) == [f"{names[0]}:a", f"{names[0]}:b"]
    for client in clients:
        await client.close()
