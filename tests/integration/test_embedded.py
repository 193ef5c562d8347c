"""The embedded runtime on the real parts: what is kept through a restart, and who brings a dead part back."""

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import TopicPartition

pytestmark = pytest.mark.real


async def create_topic(address: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    finally:
        await admin.close()


async def produce(address: str, topic: str, value: bytes) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=address, acks="all", enable_idempotence=True)
    await producer.start()
    try:
        await producer.send_and_wait(topic, value)
    finally:
        await producer.stop()


async def first_value(address: str, topic: str) -> bytes:
    partition = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="none", enable_auto_commit=False)
    consumer.assign([partition])
    await consumer.start()
    try:
        consumer.seek(partition, 0)
        return (await consumer.getone()).value or b""
    finally:
        await consumer.stop()


async def test_broker_keeps_a_record(kafka: str) -> None:
    await create_topic(kafka, "embedded-kept")
    await produce(kafka, "embedded-kept", b"one")
    assert await first_value(kafka, "embedded-kept") == b"one"
