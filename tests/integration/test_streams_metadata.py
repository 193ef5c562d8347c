"""Whatever surprises aiokafka while it learns who leads what, it goes on to learn."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient

from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import ensure_topics

pytestmark = pytest.mark.real

PLACE = (str(Topic.JOBS_EVENTS), 0)


async def test_an_error_that_nobody_expects_ends_no_client(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await ensure_topics(kafka, 4)
    update: Callable[..., Awaitable[bool]] = AIOKafkaClient._metadata_update
    surprises = [RuntimeError("the handler is closed"), KeyError("a node")]
    surprised = asyncio.Event()

    async def surprising(client: Any, *args: Any) -> bool:
        if surprises and client._sync_task is not None:
            surprised.set()
            raise surprises.pop()
        return await update(client, *args)

    log = KafkaLog(kafka)
    await log.start()
    try:
        monkeypatch.setattr(AIOKafkaClient, "_metadata_update", surprising)
        assert (await log.end_offsets([PLACE], 20))[PLACE] >= 0
        await asyncio.wait_for(surprised.wait(), 20)
        assert await log.partitions(Topic.WORKERS) > 0, "of a topic that it has to learn"
        assert surprises == []
    finally:
        await log.stop()
