"""A job's history on a real broker, and the broker's own settings."""

import asyncio
import uuid

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import check_broker, ensure_topics
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.kafka.topics import BrokerRefused, topic_specs
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.partitioning import partition_of
from aetheris.testkit.clock import VirtualClock

pytestmark = [pytest.mark.nightly, pytest.mark.real]

PARTITIONS = 4


class Pausing(VirtualClock):
    """Every pause is long and takes no time; another service may create the topics in it."""

    def __init__(self, kafka: str, *, creates: bool) -> None:
        super().__init__()
        self.created: list[list[str]] = []
        self._kafka = kafka
        self._creates = creates

    async def sleep(self, delay_s: float) -> None:
        if self._creates:
            self.created.append(await ensure_topics(self._kafka, PARTITIONS))
        else:
            await self.advance(100 * delay_s)


async def delete(kafka: str, topic: str) -> None:
    """Return once the broker knows no such topic."""
    admin = AIOKafkaAdminClient(**client_options(kafka))
    await admin.start()
    await admin.delete_topics([topic])
    while True:
        if topic not in await admin.list_topics():
            break
        await asyncio.sleep(0.05)
    await admin.close()


async def test_topics_are_made_once_and_checked(kafka: str) -> None:
    await ensure_topics(kafka, PARTITIONS)
    assert await ensure_topics(kafka, PARTITIONS) == []
    await check_broker(kafka, PARTITIONS, dev=True)
    with pytest.raises(BrokerRefused, match=r"min\.insync\.replicas must be at least 2"):
        await check_broker(kafka, PARTITIONS)
    clock = Pausing(kafka, creates=True)
    with pytest.raises(BrokerRefused, match="4 partitions, must be 5"):
        await check_broker(kafka, PARTITIONS + 1, dev=True, clock=clock)
    assert clock.created == []  # at once


async def test_a_topic_that_no_broker_knows_is_waited_for_and_then_refused(kafka: str) -> None:
    await ensure_topics(kafka, PARTITIONS)
    late = dead_letters(Topic.LEDGER_CONTENTS)
    await delete(kafka, late)
    with pytest.raises(BrokerRefused, match=f"^{late}: 0 partitions, must be 4 \\(AETHERIS_PARTITIONS\\)$"):
        await check_broker(kafka, PARTITIONS, dev=True, clock=Pausing(kafka, creates=False))
    clock = Pausing(kafka, creates=True)
    await check_broker(kafka, PARTITIONS, dev=True, clock=clock)
    assert clock.created[0] == [late]


def test_nothing_is_checked_that_is_not_made() -> None:
    assert len({spec.name for spec in topic_specs(PARTITIONS)}) == 2 * len(Topic)


async def test_a_job_is_read_from_its_birth_and_nothing_else_is(kafka: str) -> None:
    await ensure_topics(kafka, PARTITIONS)
    log = KafkaLog(kafka)
    await log.start()
    appender = log.appender()
    await appender.start()
    history = JobLogReader(log)
    job, other = f"job-{uuid.uuid4().hex}", f"job-{uuid.uuid4().hex}"
    partition = partition_of(job, PARTITIONS)
    creation_offset = (await log.end_offsets([(Topic.JOBS_EVENTS, partition)]))[Topic.JOBS_EVENTS, partition]
    for number in range(50):
        await appender.append(
            [
                (Draft(Topic.JOBS_EVENTS, job.encode(), f"{number}".encode()),),
                (Draft(Topic.JOBS_EVENTS, other.encode(), b"x", partition=partition),),
            ]
        )
    records = await history.read_job(job, partition, creation_offset)
    assert [record.value.decode() for record in records] == [str(number) for number in range(50)]
    assert [r.value for r in await history.read_job(job, partition, creation_offset, until=creation_offset + 4)] == [
        b"0",
        b"1",
    ]
    assert await history.read_job(job, partition, creation_offset, until=creation_offset) == []
    many = await asyncio.gather(*(history.read_job(job, partition, creation_offset) for _ in range(10)))
    assert all(found == records for found in many)
    await history.close()
    await appender.stop()
    await log.stop()
