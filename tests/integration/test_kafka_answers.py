"""What brokers say of themselves: a real one behind a proxy that alters its answers, as those of other makers would.

No Redpanda and no Event Hubs was asked: what their answers lack is as their documentation says.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.base.refusal import refusal
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import check_broker, delete_below, ensure_topics
from aetheris.runtime.kafka.clock_skew import ClockSkewed, skew_s
from aetheris.runtime.kafka.topics import RETENTION, Assured, BrokerRefused
from aetheris.runtime.log.table import OrdersGone, Table
from aetheris.runtime.process import runtime as runtime_module
from aetheris.runtime.process.runtime import runtime
from aetheris.runtime.process.settings import RuntimeSettings
from tests.testkit.altered_answers import (
    API_VERSIONS,
    DESCRIBE_CONFIGS,
    DESCRIBE_QUORUM,
    LIST_OFFSETS,
    AlteringProxy,
    ahead,
    altering_proxy,
    being_born,
    broker_elsewhere,
    spoken,
    told,
)
from tests.testkit.brokers import configure

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PRODUCE = 0
WEEK_MS = str(7 * 24 * 3600 * 1000)
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[int, int]]:
    """Where a broker says that it is, and where it is."""
    with broker_elsewhere(tmp_path_factory.mktemp("altered")) as ports:
        yield ports


@pytest.fixture
async def proxy(ports: tuple[int, int]) -> AsyncGenerator[AlteringProxy]:
    async with altering_proxy(*ports) as found:
        await ensure_topics(f"127.0.0.1:{ports[0]}", 1)
        yield found


@pytest.fixture
def address(ports: tuple[int, int]) -> str:
    return f"127.0.0.1:{ports[0]}"


async def refused(address: str, *, dev: bool = True, assured: Assured | None = None) -> str:
    with pytest.raises(BrokerRefused) as error:
        await check_broker(address, 1, dev=dev, assured=assured or Assured())
    return str(error.value)


async def test_who_does_not_tell_in_sync_replicas_gets_a_sentence_and_a_setting(
    proxy: AlteringProxy, address: str
) -> None:
    proxy.altered[DESCRIBE_CONFIGS] = told(lambda key, value: None if key == "min.insync.replicas" else value)
    said = await refused(address, dev=False)
    assert "the brokers don't tell min.insync.replicas" in said
    assert "AETHERIS_KAFKA_IN_SYNC" in said
    said = await refused(address, dev=False, assured=Assured(in_sync=2))
    assert "min.insync.replicas" not in said
    assert "must have at least 2 replicas" in said  # it has one
    assert "min.insync.replicas must be at least 2" in await refused(address, dev=False, assured=Assured(in_sync=1))
    assert proxy.seen[DESCRIBE_CONFIGS] == 3


async def test_who_keeps_nothing_for_ever_gets_a_sentence_and_a_setting(proxy: AlteringProxy, address: str) -> None:
    proxy.altered[DESCRIBE_CONFIGS] = told(lambda key, value: WEEK_MS if (key, value) == (RETENTION, "-1") else value)
    said = await refused(address)
    assert f"{Topic.JOBS_EVENTS}: retention.ms must be -1, and it is {WEEK_MS}" in said
    assert "AETHERIS_KAFKA_RETENTION_DAYS" in said
    assert "retention.ms must be 2592000000 or more" in await refused(address, assured=Assured(retention_days=30))
    await check_broker(address, 1, dev=True, assured=Assured(retention_days=7))
    proxy.altered[DESCRIBE_CONFIGS] = told(lambda key, value: None if "retention" in key else value)
    assert f"{Topic.JOBS_EVENTS}: retention.ms must be -1, and the brokers don't tell it" in await refused(address)


async def test_orders_that_were_deleted_are_missed(proxy: AlteringProxy, address: str) -> None:
    log = KafkaLog(address)
    await log.start()
    appender = log.appender()
    try:
        await Table(log, Topic.FREEZES).load()
        await appender.start()
        await appender.append([(Draft(Topic.FREEZES, b"k", b"x", partition=0),)])
        await delete_below(address, {(Topic.FREEZES, 0): 1})
        with pytest.raises(OrdersGone, match=Topic.FREEZES):
            await Table(log, Topic.FREEZES).load()
    finally:
        await appender.stop()
        await log.stop()
    assert proxy.seen == {}


async def test_a_topic_that_is_born_for_longer_than_a_request_may_take_ends_nobody(
    proxy: AlteringProxy, address: str
) -> None:
    log = KafkaLog(address)
    await log.start()
    refusals = 60  # aiokafka asks again after 0.1 s, and gives up after 4 s
    proxy.altered[LIST_OFFSETS] = being_born(refusals)
    try:
        table = Table(log, Topic.WORKERS)
        await table.load()
        assert table.loaded
    finally:
        await log.stop()
    assert proxy.seen[LIST_OFFSETS] > refusals


async def test_requests_that_a_broker_does_not_take_are_named(proxy: AlteringProxy, address: str) -> None:
    proxy.altered[API_VERSIONS] = spoken({PRODUCE: (9, 13)})
    assert f"the broker at {address} takes no Produce 7 (it has 9 to 13)" in await refused(address)
    proxy.altered[API_VERSIONS] = spoken({DESCRIBE_CONFIGS: None})
    assert "DescribeConfigsRequest" in await refused(address)
    proxy.altered[API_VERSIONS] = spoken({DESCRIBE_CONFIGS: (40, 50)})
    assert "DescribeConfigsRequest" in await refused(address)


async def test_a_clock_that_is_far_from_the_brokers_is_refused(proxy: AlteringProxy, address: str) -> None:
    host, _, port = address.partition(":")
    real_s = await skew_s([(host, int(port))], None, None, SystemClock())
    assert real_s is not None
    assert abs(real_s) < 5  # of one machine
    for by_s, words in ((3600, r"3[56]\d\d s ahead of"), (-3600, r"3[56]\d\d s behind")):
        proxy.altered[DESCRIBE_QUORUM] = ahead(by_s)
        with pytest.raises(ClockSkewed, match=words):
            await check_broker(address, 1)
        assert any("clock" in one for one in await check_broker(address, 1, dev=True))
    proxy.altered[DESCRIBE_QUORUM] = lambda _version, answer: answer[:1] + b"\0\x1f" + answer[3:]  # not permitted
    assert await skew_s([(host, int(port))], None, None, SystemClock()) is None


async def test_what_the_brokers_come_to_later_ends_a_service_too(
    proxy: AlteringProxy, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "WATCH_S", 0.2)
    monkeypatch.setattr(runtime_module, "DOUBTED_S", 0.2)
    settings = RuntimeSettings.model_validate({"kafka": address, "data": tmp_path, "partitions": 1, "dev": True})
    topic = str(Topic.JOBS_EVENTS)
    looks, right_again = 0, asyncio.Event()

    def once_wrong(key: str, value: str) -> str:
        return WEEK_MS if looks == 1 and (key, value) == (RETENTION, "-1") else value

    def alter(version: int, answer: bytes) -> bytes:
        nonlocal looks
        looks += 1
        if looks == 4:
            right_again.set()
        return told(once_wrong)(version, answer)

    async def serve() -> None:
        async with asyncio.timeout(PATIENCE_S), runtime(settings, "test", with_redis=False):
            proxy.altered[DESCRIBE_CONFIGS] = alter
            await right_again.wait()  # the first of four looks was wrong, and nothing ended
            await configure(address, topic, {"cleanup.policy": "delete", "retention.ms": WEEK_MS})
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as ended:
        await serve()
    found = refusal(ended.value)
    assert found is not None
    assert f"{topic}: retention.ms must be -1" in str(found)
    assert found.passes
    await configure(address, topic, {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"})
