"""Brokers that send readers to the replica in their own rack: ours read the leader, wherever anybody runs."""

import asyncio
import io
from collections.abc import Generator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from aiokafka.protocol.fetch import FetchRequest_v11, FetchResponse_v11

from aetheris.protocol.base.records import Draft
from aetheris.runtime.kafka import KafkaLog, wire
from aetheris.runtime.kafka.connection import connect
from tests.testkit.cluster import Cluster, running_cluster
from tests.testkit.cluster_rig import tuning

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
ANSWER_BYTES, CORRELATION_BYTES = 1024 * 1024, 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    """Each broker in a rack of its own."""

    def racked(node: int) -> Any:
        named = {"broker.rack": f"rack-{node}", "replica.selector.class": SELECTOR}
        return replace(tuning(node), properties=named)

    with running_cluster(tmp_path_factory.mktemp("cluster"), 3, racked) as cluster:
        yield cluster


async def sent_to(cluster: Cluster, leader: int, topic: str, rack: str) -> tuple[int, bytes]:
    """(the replica that the leader names to who reads from this rack, or -1; the records that it gives)."""
    fetch = FetchRequest_v11(-1, 100, 1, ANSWER_BYTES, 0, 0, -1, [(topic, [(0, -1, 0, -1, ANSWER_BYTES)])], [], rack)
    connection = await connect(("127.0.0.1", cluster.broker(leader).port), None)
    try:
        answer = await connection.call(wire.Api(FetchRequest_v11.API_KEY, FetchRequest_v11.API_VERSION), fetch.encode())
    finally:
        connection.close()
    read: Any = FetchResponse_v11.decode(io.BytesIO(answer))
    ((_, (part,)),) = read.topics
    return part[-2], part[-1] or b""


async def test_a_reader_gets_all_from_the_leader(cluster: Cluster) -> None:
    """Who says his rack is sent away with nothing; who says none, and asks as we do, never is."""
    topic = f"racks-{uuid4().hex[:8]}"
    await cluster.create(topic)
    log = KafkaLog(cluster.address)
    await log.start()
    appender, reader = log.appender(), log.reader()
    await appender.start()
    await appender.append([(Draft(topic, b"k", b"value"),)])
    leader = await cluster.leader(topic)
    other = next(node for node in cluster.nodes if node != leader)
    async with asyncio.timeout(60):
        while (await sent_to(cluster, leader, topic, f"rack-{other}"))[0] != other:  # noqa: ASYNC110  it tells who asks
            await asyncio.sleep(0.2)
        assert (await sent_to(cluster, leader, topic, f"rack-{other}"))[1] == b""
        await reader.start()
        reader.assign({(topic, 0): 0})
        found: list[bytes] = []
        while not found:
            found += [record.value for records in (await reader.poll(1.0)).values() for record in records]
    assert found == [b"value"]
    await reader.stop()
    await appender.stop()
    await log.stop()
