"""Redis as the services use it: raw pipelines with a deadline; being down is one typed error, never a hang."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

Command = tuple[str | bytes | int | float, ...]


class RedisUnavailable(Exception):
    """Redis did not answer in time, or refused; safety never rests on it, so callers go on without."""

    code = "redis_unavailable"


class Redis:
    """A pool of connections to one Redis or Valkey, by URL (redis://…, rediss://… or unix://…)."""

    def __init__(self, url: str, deadline_s: float = 1.0, connections: int = 8) -> None:
        self._deadline_s = deadline_s
        self._failure: str | None = None
        self._asking: asyncio.Future[None] | None = None
        self._pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
            url, max_connections=connections, timeout=None, protocol=2, socket_connect_timeout=deadline_s
        )

    async def pipeline(self, commands: Sequence[Command], deadline_s: float | None = None) -> list[Any]:
        """Send all commands at once; their replies in order, as bytes, int, list or None.

        Raises:
            RedisUnavailable: no connection, an error reply, or the deadline passed; what was done is unknown.
        """
        if not commands:
            return []
        try:
            async with asyncio.timeout(self._deadline_s if deadline_s is None else deadline_s):
                replies = await self._exchange(commands)
        except (RedisError, OSError, TimeoutError) as error:
            self._failure = type(error).__name__
            raise RedisUnavailable(self._failure) from None
        self._failure = None
        return replies

    def unready(self) -> str | None:
        """Why Redis isn't ready, by the last exchange; None if that one was answered.

        Whoever has nothing more to ask would never learn that Redis is back: to be asked this asks Redis, too.
        """
        if self._failure is None:
            return None
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask_again())
        return f"Redis did not answer: {self._failure}"

    async def ping(self) -> None:
        """Ask whether Redis is there.

        Raises:
            RedisUnavailable: it is not.
        """
        await self.pipeline([("PING",)])

    async def _ask_again(self) -> None:
        with suppress(RedisUnavailable):
            await self.ping()

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.disconnect()

    async def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        connection: AbstractConnection = await self._pool.get_connection()
        answered = False
        try:
            await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
            replies = [await connection.read_response() for _ in commands]
            answered = True
            return replies
        finally:
            if not answered:  # replies may still be on their way: they must not meet the next command
                await connection.disconnect(nowait=True)
            await self._pool.release(connection)
