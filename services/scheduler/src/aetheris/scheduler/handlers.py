"""A message of a user's topic becomes a job; it is noted in Kafka once the gateway has taken that."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from aetheris.scheduler.core.job_starts import message_key
from aetheris.scheduler.core.told_starts import StartSource
from aetheris.scheduler.job_writer import JobWriter
from aetheris.scheduler.loaded_starts import TopicTrigger
from aetheris.sdk.keyed_jobs import NotTaken

MAX_BYTES = 256 * 1024
PAUSE_S = 2.0
"""Before a message comes again whose job the gateway did not take."""


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """As it lies in Kafka."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes


class TriggerHandler:
    """Keeps nothing: the message's place, or its key, names the job."""

    def __init__(self, trigger: TopicTrigger, writer: JobWriter) -> None:
        self._entry = trigger.entry
        self._source = StartSource("topic", trigger.entry.name)
        self._plan = trigger.plan
        self._writer = writer

    async def came(self, message: TopicMessage) -> None:
        """Start the job of a message; raises NotTaken: the same message is to come again."""
        read = self._read(message)
        if read is None:
            return
        occasion, key = read
        try:
            await self._writer.start(self._source, self._plan, occasion, key)
        except NotTaken:
            await asyncio.sleep(PAUSE_S)
            raise

    def _read(self, message: TopicMessage) -> tuple[dict[str, Any], str] | None:
        """What the plan may name of it, and the job's key; None where it can start none."""
        place = {"topic": self._entry.topic, "partition": message.partition, "offset": message.offset}
        try:
            named = message.key.decode() if message.key is not None else None
            value: Any = json.loads(message.value) if 0 < len(message.value) <= MAX_BYTES else None
        except (ValueError, RecursionError):
            value = named = None
        if value is None or (named is None and self._entry.once_per == "key"):
            self._writer.refused(self._source, place, "message")
            return None
        occasion = {**place, "key": named, "value": value}
        if self._entry.once_per == "key":
            return occasion, message_key(self._entry.name, "key", named or "")
        return occasion, message_key(self._entry.name, str(message.partition), str(message.offset))
