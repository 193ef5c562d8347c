"""The doorbell: a hint, over Redis, that somebody waits for what is being appended; nothing rests on it.

Whoever reads in pauses reads on at once when it rings. It may be lost, and costs a pause then.
"""

import asyncio
from collections.abc import Callable

import structlog

from aetheris.streams.redis import Redis, RedisUnavailable

_log = structlog.get_logger(__name__)

_CHANNEL = "aetheris:bell"
_RETRY_PAUSE_S = 1.0

AWAKE_S = 0.03
"""For how long a reader that heard it doesn't pause: what rang it causes more."""


class Bell:
    """Rings for all processes on one Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._ringing: set[asyncio.Task[None]] = set()

    def ring(self) -> None:
        """Ring without waiting for it."""
        task = asyncio.create_task(self._publish())
        self._ringing.add(task)
        task.add_done_callback(self._ringing.discard)

    async def listen(self, heard: Callable[[], None]) -> None:
        """Call `heard` at every ring, until cancelled."""
        while True:
            try:
                await self._redis.listen(_CHANNEL, heard)
            except RedisUnavailable as error:
                _log.info("the bell can't be heard", error=str(error))
            await asyncio.sleep(_RETRY_PAUSE_S)

    async def _publish(self) -> None:
        try:
            await self._redis.pipeline([("PUBLISH", _CHANNEL, b"")])
        except RedisUnavailable:
            return
