"""Leases on a real Valkey, while the event loop computes, hangs, or can reach no broker."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest
import redis as other

from aetheris.cli.embedded.kafka import broker_in, install
from aetheris.cli.embedded.ports import Ports
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.redis.client import Redis
from aetheris.runtime.redis.leases import Leases
from aetheris.tool_executor.heartbeat import Heartbeat
from aetheris.tool_executor.settings import ExecutorSettings
from tests.integration.test_streams_outages import Fragile
from tests.testkit.executors import CALLS, RELEASE, ExecutorSurroundings, executing
from tests.testkit.external_server import until

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]

TTL_S = 0.6
PATIENCE_S = 60.0
DEADLINE_S = 60.0


@pytest.fixture
def valkey(valkey_url: str) -> Generator["other.Redis"]:
    """A client that is not ours, and needs no event loop."""
    client = other.Redis.from_url(valkey_url)
    yield client
    client.close()


def is_held(valkey: "other.Redis", key: str) -> bool:
    return bool(valkey.exists(f"aetheris:lease:{key}"))


@asynccontextmanager
async def beating(url: str, key: str, patience_s: float = PATIENCE_S) -> AsyncGenerator[Heartbeat]:
    """A lease in hand, renewed."""
    heartbeat = Heartbeat(Leases(Redis(url)), TTL_S, SystemClock(), patience_s)
    heartbeat.hold(key, "l1")
    running = asyncio.create_task(heartbeat.run(url))
    try:
        yield heartbeat
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_loop_that_computes_loses_no_lease(valkey_url: str, valkey: "other.Redis") -> None:
    key = uuid.uuid4().hex
    async with beating(valkey_url, key):
        await asyncio.sleep(TTL_S)
        for _ in range(20):
            time.sleep(TTL_S / 4)  # noqa: ASYNC251 - that is what is asked
            assert is_held(valkey, key)


async def test_a_loop_that_hangs_loses_them_in_the_end(valkey_url: str, valkey: "other.Redis") -> None:
    key = uuid.uuid4().hex
    async with beating(valkey_url, key, patience_s=2 * TTL_S):
        await asyncio.sleep(TTL_S)
        assert is_held(valkey, key)
        until(lambda: not is_held(valkey, key), DEADLINE_S)
        await asyncio.to_thread(until, lambda: is_held(valkey, key), DEADLINE_S)


async def test_what_is_let_go_and_who_has_ended_renews_nothing(valkey_url: str, valkey: "other.Redis") -> None:
    first, second = uuid.uuid4().hex, uuid.uuid4().hex
    async with beating(valkey_url, first) as heartbeat:
        heartbeat.hold(second, "l1")
        await asyncio.to_thread(until, lambda: is_held(valkey, second), DEADLINE_S)
        heartbeat.let_go(first, "l1")
        await asyncio.to_thread(until, lambda: not is_held(valkey, first), DEADLINE_S)
        assert is_held(valkey, second)
    await asyncio.to_thread(until, lambda: not is_held(valkey, second), DEADLINE_S)


async def test_an_executor_that_can_not_report_keeps_no_lease(
    valkey_url: str, valkey: "other.Redis", tmp_path: Path
) -> None:
    """Its call is done, its broker stands: the lease lapses, and the report comes all the same."""
    broker = Fragile(broker_in(install(lambda _part, _message: None), tmp_path, Ports(tmp_path)), tmp_path / "log")
    try:
        broker.start()
        await ensure_topics(broker.address, 4)
        async with known(broker.address, valkey_url, tmp_path / "data") as surroundings:
            await standing(surroundings, broker, valkey)
    finally:
        broker.end()


@asynccontextmanager
async def known(kafka: str, valkey_url: str, data: Path) -> AsyncGenerator[ExecutorSurroundings]:
    named = {
        "kafka": kafka,
        "redis": valkey_url,
        "data": data,
        "worker_id": "executor-under-test",
        "dev": True,
        "trace_sample": 0.0,
    }
    settings = ExecutorSettings.model_validate({**named, "lease_ttl_s": TTL_S, "lease_patience_s": 2.0})
    log, redis = KafkaLog(kafka), Redis(valkey_url)
    await log.start()
    async with ExecutorSurroundings(log, redis, settings).watching() as surroundings:
        yield surroundings
    await redis.close()
    await log.stop()


async def standing(surroundings: ExecutorSurroundings, broker: Fragile, valkey: "other.Redis") -> None:
    gate = uuid.uuid4().hex
    job_id = await surroundings.job({"id": "a", "tool": "note", "args": {"text": "a", "wait_for": gate}})
    async with executing(surroundings.settings):
        granted = await surroundings.grant(job_id, "a")
        key = granted.idempotency_key
        await surroundings.until(lambda: CALLS[f"aetheris:{job_id}:a:0"])
        await asyncio.to_thread(until, lambda: is_held(valkey, key), DEADLINE_S)
        broker.signal(SIGSTOP)
        await asyncio.sleep(4 * TTL_S)
        assert is_held(valkey, key), "a call that runs has nothing to report"
        RELEASE[gate].set()
        await asyncio.to_thread(until, lambda: not is_held(valkey, key), DEADLINE_S)
        broker.signal(SIGCONT)
        await surroundings.settled(job_id)
