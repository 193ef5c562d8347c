"""Redis as the services use it: raw pipelines with a deadline; being down is one typed error, never a hang."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import hiredis

from aetheris.runtime.base.prefix import in_redis
from aetheris.runtime.redis.link import route_of
from aetheris.runtime.redis.location import redis_at
from aetheris.runtime.redis.resp import Command, RedisConnection


class RedisUnavailable(Exception):
    """Redis did not answer in time, or refused; safety never rests on it, so callers go on without."""

    code = "redis_unavailable"


class Redis:
    """A Redis or Valkey, by URL (`location.redis_at`); all share a connection to each master, renewed when it fails."""

    def __init__(self, url: str, deadline_s: float = 1.0, *, prefix: str = "") -> None:
        self._prefix = in_redis(prefix)
        self._route = route_of(redis_at(url), deadline_s)
        self._deadline_s = deadline_s
        self._failure: str | None = None
        self._asking: asyncio.Future[None] | None = None

    def named(self, name: str) -> str:
        """What the server knows a key, a channel or the beginning of either by; commands have no other."""
        return self._prefix + name

    def together(self, name: str, slot: str) -> str:
        """The beginning of names whose keys lie in one slot of a cluster, so that one script may have them all."""
        return f"{self._prefix}{name}{{{self._prefix}{slot}}}:"

    async def pipeline(
        self, commands: Sequence[Command], deadline_s: float | None = None, *, refusals: bool = False
    ) -> list[Any]:
        """Send all commands at once; their replies in order, as bytes, int, list or None.

        All keys of one command lie in one slot (`together`). In a cluster, a command without a key goes with the one
        before it.

        Args:
            refusals: where a key holds another kind of value, that error stands in its place, and fails nobody
                else's command.

        Raises:
            RedisUnavailable: no connection, an error reply, or the deadline passed; what was done is unknown.
        """
        if not commands:
            return []
        within_s = self._deadline_s if deadline_s is None else deadline_s
        try:
            replies = await self._route.exchange(commands, within_s, refusals=refusals)
            if refusals:
                _refuse_others(replies)
        except (hiredis.HiredisError, OSError, TimeoutError) as error:
            self._failure = type(error).__name__
            raise RedisUnavailable(self._failure) from None
        self._failure = None
        return replies

    async def each(self, commands_of: Callable[[str], Sequence[Command]]) -> list[list[Any]]:
        """Ask each master, and get its replies; `commands_of` is told a hash tag whose keys lie there.

        The tag is "" where one server has all keys.

        Raises:
            RedisUnavailable: one of them can't be reached, or refuses; what was done is unknown.
        """
        try:
            return await self._route.each(commands_of, self._deadline_s)
        except (hiredis.HiredisError, OSError, TimeoutError) as error:
            self._failure = type(error).__name__
            raise RedisUnavailable(self._failure) from None

    async def listen(self, channel: str, woken: Callable[[], None]) -> None:
        """Call `heard` at every message of a channel, until the connection of its own ends.

        Raises:
            RedisUnavailable: Redis can't be reached, or refuses.
        """
        connection: RedisConnection | None = None
        try:
            async with asyncio.timeout(self._deadline_s):
                connection = await self._route.dial(lambda _message: woken())
                await connection.ask([("SUBSCRIBE", channel)])
            await connection.lost
        except (hiredis.HiredisError, OSError, TimeoutError) as error:
            raise RedisUnavailable(type(error).__name__) from None
        finally:
            if connection is not None:
                connection.close()

    def evicting(self) -> str | None:
        """How a server that was asked throws away what it is given, where it does, and what it should do."""
        return self._route.evicting()

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
        """Close the connections."""
        await self._route.close()


def _refuse_others(replies: Sequence[Any]) -> None:
    """What a server says of itself (it loads, has lost the slot, knows nobody) is no answer about a key."""
    for reply in replies:
        if isinstance(reply, hiredis.ReplyError) and not str(reply).startswith("WRONGTYPE"):
            raise reply
