"""The connection to one server that all share: made when somebody asks, and again where it has failed."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import hiredis

from aetheris.runtime.redis.location import Address, RedisKind, RedisLocation
from aetheris.runtime.redis.resp import Command, RedisConnection, connect

NOEVICTION = "noeviction"

Pushed = Callable[[Any], None]
Dial = Callable[[Pushed | None], Awaitable[RedisConnection]]
"""A new connection to a server that takes writes; raises OSError, hiredis.ReplyError."""


class IsReplica(ConnectionError):
    """The server takes no writes: another one is the master."""


class RedisRoute(Protocol):
    """Who asks the servers that a URL names; all of it raises hiredis.HiredisError, OSError, TimeoutError."""

    async def exchange(self, commands: Sequence[Command], within_s: float, *, refusals: bool) -> list[Any]:
        """Send all commands at once, each to where its key lies; their replies in order."""
        ...

    async def each(self, commands_of: Callable[[str], Sequence[Command]], within_s: float) -> list[list[Any]]:
        """Ask every master: `commands_of` is told a hash tag whose keys lie there, "" where there is one master."""
        ...

    async def dial(self, pushed: Pushed | None) -> RedisConnection:
        """A connection of the caller's own, to any server where messages of channels arrive."""
        ...

    def evicting(self) -> str | None:
        """Which server throws keys away where memory is short, and by which policy, as far as was seen."""
        ...

    async def close(self) -> None:
        """End all connections."""
        ...


class ServerLink:
    """One server's connection. A server that doesn't answer in time is left: everybody's replies come in turn."""

    def __init__(self, dial: Dial, deadline_s: float) -> None:
        self._dial = dial
        self._deadline_s = deadline_s
        self._connection: RedisConnection | None = None
        self._connecting: asyncio.Task[RedisConnection] | None = None
        self.evicting: str | None = None
        """Its policy, where that evicts."""

    @property
    def open(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None and self._connection.open

    async def exchange(self, commands: Sequence[Command], within_s: float, *, refusals: bool) -> list[Any]:
        """Their replies in order; with `refusals` an error reply stands in its place.

        Raises:
            hiredis.ReplyError: a command was refused. OSError, TimeoutError: what was done is unknown.
        """
        connection = self._connection
        if connection is None or not connection.open:
            connection = await self._connected(within_s)
        asked = connection.ask(commands, refusals=refusals)
        deadline = asyncio.get_running_loop().call_later(within_s, connection.close)
        try:
            return await asked
        except hiredis.ReplyError as error:
            if str(error).startswith("READONLY"):  # it was the master
                connection.close()
            raise
        finally:
            deadline.cancel()

    async def close(self) -> None:
        """End it."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()

    async def _connected(self, within_s: float) -> RedisConnection:
        """The connection that whoever came first is making."""
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(seen)
        async with asyncio.timeout(within_s):
            return await asyncio.shield(self._connecting)

    async def _connect(self) -> RedisConnection:
        try:
            async with asyncio.timeout(self._deadline_s):
                connection = await self._dial(None)
                try:
                    self.evicting = await _judged(connection)
                except BaseException:
                    connection.close()
                    raise
                self._connection = connection
                return connection
        finally:
            self._connecting = None


class OneServer:
    """The route where one server has all keys: the one that the URL names, or whoever is the master."""

    def __init__(self, dial: Dial, deadline_s: float) -> None:
        self._dial = dial
        self._link = ServerLink(dial, deadline_s)
        self.exchange = self._link.exchange

    async def each(self, commands_of: Callable[[str], Sequence[Command]], within_s: float) -> list[list[Any]]:
        """RedisRoute's."""
        return [await self._link.exchange(commands_of(""), within_s, refusals=False)]

    async def dial(self, pushed: Pushed | None) -> RedisConnection:
        """RedisRoute's."""
        return await self._dial(pushed)

    def evicting(self) -> str | None:
        """RedisRoute's."""
        policy = self._link.evicting
        return None if policy is None else f"maxmemory-policy must be {NOEVICTION}, is {policy}"

    async def close(self) -> None:
        """RedisRoute's."""
        await self._link.close()


def direct(location: RedisLocation) -> Dial:
    """To the server that the URL names."""
    place = location.path if location.path is not None else location.addresses[0]
    return dialling(location, place)


def dialling(location: RedisLocation, place: Address | str) -> Dial:
    """To one server, as the URL says that servers are to be spoken to."""
    tls = location.tls.context() if location.tls is not None else None

    async def dial(pushed: Pushed | None) -> RedisConnection:
        return await connect(place, tls, location.login, location.database, pushed)

    return dial


def route_of(location: RedisLocation, deadline_s: float) -> RedisRoute:
    """Who asks the servers of a URL.

    Raises:
        BadRedisUrl: its certificates can't be used.
    """
    # redis-py takes a quarter of a second and 32 MB to import: only where it is asked who the servers are.
    if location.kind is RedisKind.SENTINEL:
        from aetheris.runtime.redis.sentinel import by_sentinels  # noqa: PLC0415

        return by_sentinels(location, deadline_s)
    if location.kind is RedisKind.CLUSTER:
        from aetheris.runtime.redis.cluster import ClusterRoute  # noqa: PLC0415

        return ClusterRoute(location, deadline_s)
    return OneServer(direct(location), deadline_s)


def info_field(info: bytes, name: bytes) -> str | None:
    """A field of what INFO answers."""
    found = [line.partition(b":")[2] for line in info.splitlines() if line.partition(b":")[0] == name]
    return found[0].decode(errors="replace").strip() if found else None


def evicts(policy: str | None) -> bool:
    """Whether a server with this maxmemory-policy throws keys away that nobody deleted."""
    return policy not in (None, NOEVICTION)


async def _judged(connection: RedisConnection) -> str | None:
    """A new connection's server takes writes; its policy, where that evicts."""
    (info,) = await connection.ask([("INFO",)], refusals=True)
    if not isinstance(info, bytes):
        return None  # it doesn't tell
    if info_field(info, b"role") == "slave":
        raise IsReplica("the server is a replica")
    policy = info_field(info, b"maxmemory_policy")
    return policy if evicts(policy) else None


def seen(task: "asyncio.Task[Any]") -> None:
    """Whoever waited for it may have given up before it failed."""
    if not task.cancelled():
        task.exception()
