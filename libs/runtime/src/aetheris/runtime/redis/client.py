"""Redis as the services use it: raw pipelines with a deadline; being down is one typed error, never a hang."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import hiredis

from aetheris.runtime.base.prefix import in_redis
from aetheris.runtime.redis.resp import Command, RedisConnection, address_of, connect


class RedisUnavailable(Exception):
    """Redis did not answer in time, or refused; safety never rests on it, so callers go on without."""

    code = "redis_unavailable"


class Redis:
    """One Redis or Valkey, by URL (`resp.address_of`); all share a connection, which is renewed when it fails."""

    def __init__(self, url: str, deadline_s: float = 1.0, *, prefix: str = "") -> None:
        self._prefix = in_redis(prefix)
        self._address = address_of(url)
        self._deadline_s = deadline_s
        self._failure: str | None = None
        self._asking: asyncio.Future[None] | None = None
        self._connection: RedisConnection | None = None
        self._connecting: asyncio.Task[RedisConnection] | None = None

    def named(self, name: str) -> str:
        """What the server knows a key, a channel or the beginning of either by; commands have no other."""
        return self._prefix + name

    async def pipeline(
        self, commands: Sequence[Command], deadline_s: float | None = None, *, refusals: bool = False
    ) -> list[Any]:
        """Send all commands at once; their replies in order, as bytes, int, list or None.

        Args:
            refusals: an error reply stands in its place, and fails nobody else's command.

        Raises:
            RedisUnavailable: no connection, an error reply, or the deadline passed; what was done is unknown.
        """
        if not commands:
            return []
        within_s = self._deadline_s if deadline_s is None else deadline_s
        try:
            connection = self._connection
            if connection is None or not connection.open:
                connection = await self._connected(within_s)
            replies = await self._exchange(connection, commands, within_s, refusals=refusals)
        except (hiredis.HiredisError, OSError, TimeoutError) as error:
            self._failure = type(error).__name__
            raise RedisUnavailable(self._failure) from None
        self._failure = None
        return replies

    async def listen(self, channel: str, woken: Callable[[], None]) -> None:
        """Call `heard` at every message of a channel, until the connection of its own ends.

        Raises:
            RedisUnavailable: Redis can't be reached, or refuses.
        """
        connection: RedisConnection | None = None
        try:
            async with asyncio.timeout(self._deadline_s):
                connection = await connect(self._address, lambda _message: woken())
                await connection.ask([("SUBSCRIBE", channel)])
            await connection.lost
        except (hiredis.HiredisError, OSError, TimeoutError) as error:
            raise RedisUnavailable(type(error).__name__) from None
        finally:
            if connection is not None:
                connection.close()

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
        """Close the connection."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()

    async def _connected(self, within_s: float) -> RedisConnection:
        """The connection that whoever came first is making."""
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(_seen)
        async with asyncio.timeout(within_s):
            return await asyncio.shield(self._connecting)

    async def _connect(self) -> RedisConnection:
        try:
            async with asyncio.timeout(self._deadline_s):
                self._connection = await connect(self._address)
                return self._connection
        finally:
            self._connecting = None

    @staticmethod
    async def _exchange(
        connection: RedisConnection, commands: Sequence[Command], within_s: float, *, refusals: bool
    ) -> list[Any]:
        """A server that doesn't answer in time is left: everybody's replies come in turn, so all would wait."""
        asked = connection.ask(commands, refusals=refusals)
        deadline = asyncio.get_running_loop().call_later(within_s, connection.close)
        try:
            return await asked
        finally:
            deadline.cancel()


def _seen(task: "asyncio.Task[RedisConnection]") -> None:
    """Whoever waited for it may have given up before it failed."""
    if not task.cancelled():
        task.exception()
