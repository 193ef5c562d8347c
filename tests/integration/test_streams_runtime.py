"""What every service stands on, started and ended as one."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.process.lifecycle import Stopped
from aetheris.runtime.process.runtime import runtime
from aetheris.runtime.process.settings import RuntimeSettings

pytestmark = pytest.mark.real


async def test_a_service_stands_on_real_parts(kafka: str, valkey_url: str, tmp_path: Path) -> None:
    settings = RuntimeSettings(kafka=kafka, redis=valkey_url, data=tmp_path, dev=True, partitions=4)
    async with runtime(settings, "test") as parts:
        await parts.redis.ping()
        await parts.appender.append([(Draft(Topic.VERIFICATIONS, b"runtime", b"{}"),)])
        assert parts.health.unready() == {}


async def test_without_a_broker_it_waits_until_it_is_stopped(valkey_url: str, tmp_path: Path) -> None:
    settings = RuntimeSettings(kafka="127.0.0.1:1", redis=valkey_url, data=tmp_path, dev=True)
    stop = asyncio.Event()
    with capture_logs() as reported:
        async with asyncio.timeout(30):
            entering = asyncio.create_task(entered(settings, stop))
            while not reported:  # noqa: ASYNC110 - it is a log
                await asyncio.sleep(0.01)
            assert not entering.done()
            stop.set()
            with pytest.raises(Stopped):
                await entering
    assert reported[0]["event"] == "waiting for the brokers"
    assert "127.0.0.1:1" in reported[0]["error"]


async def entered(settings: RuntimeSettings, stop: asyncio.Event) -> None:
    async with runtime(settings, "test", stop):
        raise AssertionError("there is no broker")
