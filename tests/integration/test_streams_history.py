"""A job's history on a real broker, and the broker's own settings."""

import asyncio
import uuid

import pytest

from aetheris.protocol.records import Draft
from aetheris.protocol.topics import Topic
from aetheris.streams.admin import BrokerRefused, check_broker, ensure_topics, topic_specs
from aetheris.streams.history import History
from aetheris.streams.kafka import KafkaLog
from aetheris.streams.partitioning import partition_of

pytestmark = pytest.mark.real

PARTITIONS = 4


async def test_topics_are_made_once_and_checked(kafka: str) -> None:
    await ensure_topics(kafka, PARTITIONS)
    assert await ensure_topics(kafka, PARTITIONS) == []
    await check_broker(kafka, PARTITIONS, dev=True)
    with pytest.raises(BrokerRefused, match=r"min\.insync\.replicas must be at least 2"):
        await check_broker(kafka, PARTITIONS)
    with pytest.raises(BrokerRefused, match="4 partitions, must be 5"):
        await check_broker(kafka, PARTITIONS + 1, dev=True)


def test_nothing_is_checked_that_is_not_made() -> None:
    assert len({spec.name for spec in topic_specs(PARTITIONS)}) == 2 * len(Topic)


async def test_a_job_is_read_from_its_birth_and_nothing_else_is(kafka: str) -> None:
    await ensure_topics(kafka, PARTITIONS)
    log = KafkaLog(kafka)
    await log.start()
    appender = log.appender()
    await appender.start()
    history = History(log)
    job, other = f"job-{uuid.uuid4().hex}", f"job-{uuid.uuid4().hex}"
    partition = partition_of(job, PARTITIONS)
    birth = (await log.end_offsets([(Topic.JOBS_EVENTS, partition)]))[Topic.JOBS_EVENTS, partition]
    for number in range(50):
        await appender.append(
            [
                (Draft(Topic.JOBS_EVENTS, job.encode(), f"{number}".encode()),),
                (Draft(Topic.JOBS_EVENTS, other.encode(), b"x", partition=partition),),
            ]
        )
    records = await history.read_job(job, partition, birth)
    assert [record.value.decode() for record in records] == [str(number) for number in range(50)]
    assert [r.value for r in await history.read_job(job, partition, birth, until=birth + 4)] == [b"0", b"1"]
    assert await history.read_job(job, partition, birth, until=birth) == []
    many = await asyncio.gather(*(history.read_job(job, partition, birth) for _ in range(10)))
    assert all(found == records for found in many)
    await history.close()
    await appender.stop()
    await log.stop()
