"""What every service stands on, started and ended as one."""

import asyncio
from pathlib import Path

import pytest

from aetheris.protocol.records import Draft
from aetheris.protocol.topics import Topic
from aetheris.streams.log import LogUnreachable
from aetheris.streams.runtime import runtime
from aetheris.streams.settings import RuntimeSettings

pytestmark = pytest.mark.real


async def test_a_service_stands_on_real_parts(kafka: str, valkey_url: str, tmp_path: Path) -> None:
    settings = RuntimeSettings(kafka=kafka, redis=valkey_url, data=tmp_path, dev=True, partitions=4)
    async with runtime(settings, "test") as parts:
        await parts.redis.ping()
        await parts.appender.append([(Draft(Topic.VERIFICATIONS, b"runtime", b"{}"),)])
        assert parts.health.unready() == {}


async def test_without_a_broker_it_says_so(valkey_url: str, tmp_path: Path) -> None:
    settings = RuntimeSettings(kafka="127.0.0.1:1", redis=valkey_url, data=tmp_path, dev=True)
    with pytest.raises(LogUnreachable, match=r"127\.0\.0\.1:1"):
        async with asyncio.timeout(30), runtime(settings, "test"):
            pass
