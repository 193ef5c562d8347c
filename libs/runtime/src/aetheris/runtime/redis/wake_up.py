"""The doorbell: a hint, over Redis, that somebody waits for what is being appended; nothing rests on it.

Whoever reads in pauses reads on at once when it rings. It may be lost, and costs a pause then.
"""

import asyncio
from collections.abc import Callable

import structlog

from aetheris.runtime.redis.client import Redis, RedisUnavailable

_log = structlog.get_logger(__name__)

_RETRY_PAUSE_S = 1.0

AWAKE_S = 0.005
"""For how long a reader doesn't pause after a wake-up: it may come just before the record is there."""


class WakeUp:
    """Rings for all processes of a service on one Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._channels = redis.named("aetheris:bell:")
        self._sending: set[asyncio.Task[None]] = set()

    def send(self, service: str) -> None:
        """Ring without waiting for it."""
        task = asyncio.create_task(self._publish(service))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def listen(self, service: str, woken: Callable[[], None]) -> None:
        """Call `heard` at every wake-up of a service, until cancelled."""
        while True:
            try:
                await self._redis.listen(self._channels + service, woken)
            except RedisUnavailable as error:
                _log.info("wake-ups can't be received", error=str(error))
            await asyncio.sleep(_RETRY_PAUSE_S)

    async def _publish(self, service: str) -> None:
        try:
            await self._redis.pipeline([("PUBLISH", self._channels + service, b"")])
        except RedisUnavailable:
            return
