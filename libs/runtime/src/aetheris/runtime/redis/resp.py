"""One connection to a Redis or Valkey server: commands out, replies in, in order; hiredis packs and parses."""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import hiredis

from aetheris.runtime.redis.location import Address, RedisLogin

Command = tuple[str | bytes | int | float, ...]

_NOTHING_YET = object()


_packed = cast("Callable[[Command], bytes]", hiredis.pack_command)  # its stub allows one argument


class _Exchange:
    """Commands that were sent together, and the replies to them so far."""

    __slots__ = ("done", "error", "left", "refusals", "replies")

    def __init__(self, commands: int, *, refusals: bool) -> None:
        self.left = commands
        self.refusals = refusals
        self.replies: list[Any] = []
        self.error: Exception | None = None
        self.done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

    def take(self, reply: Any) -> bool:
        """Whether it was the last; an error reply fails the exchange once all are in, unless refusals are wanted."""
        self.left -= 1
        if isinstance(reply, Exception) and not self.refusals:
            self.error = self.error or reply
        self.replies.append(reply)
        if self.left:
            return False
        if self.done.done():
            return True  # whoever asked has gone; the reply belonged to nobody else
        if self.error is not None:
            self.done.set_exception(self.error)
        else:
            self.done.set_result(self.replies)
        return True


class RedisConnection(asyncio.Protocol):
    """Shared by all who ask: each exchange gets its own replies, by its turn. Any doubt about that closes it."""

    def __init__(self, pushed: Callable[[Any], None] | None = None) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pushed = pushed
        self._reader = hiredis.Reader(notEnoughData=_NOTHING_YET)
        self._waiting: deque[_Exchange] = deque()
        self._transport: asyncio.Transport | None = None

    @property
    def open(self) -> bool:
        """Whether it can be asked."""
        return self._transport is not None

    def ask(self, commands: Sequence[Command], *, refusals: bool = False) -> "asyncio.Future[list[Any]]":
        """Send; the replies as bytes, int, list or None, and with `refusals` hiredis.ReplyError where it was refused.

        The future raises hiredis.ReplyError for an error reply, ConnectionError where the connection ends first.
        """
        exchange = _Exchange(len(commands), refusals=refusals)
        if self._transport is None:
            exchange.done.set_exception(ConnectionResetError("the connection is closed"))
            return exchange.done
        self._waiting.append(exchange)
        self._transport.write(b"".join(map(_packed, commands)))
        return exchange.done

    def close(self) -> None:
        """End it now; what was asked and not answered is unknown."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not asyncio's by class

    def data_received(self, data: bytes) -> None:
        """asyncio's."""
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _NOTHING_YET:
                self._take(reply)
        except hiredis.ProtocolError:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  its name is given
        """asyncio's."""
        self._transport = None
        while self._waiting:
            exchange = self._waiting.popleft()
            if not exchange.done.done():
                exchange.done.set_exception(ConnectionResetError("the connection ended before the reply"))
        if not self.lost.done():
            self.lost.set_result(None)

    def _take(self, reply: Any) -> None:
        if self._waiting:
            if self._waiting[0].take(reply):
                self._waiting.popleft()
        elif self._pushed is not None:
            self._pushed(reply)
        else:
            self.close()


async def connect(
    place: Address | str,
    tls: ssl.SSLContext | None,
    login: RedisLogin,
    database: int = 0,
    pushed: Callable[[Any], None] | None = None,
) -> RedisConnection:
    """A connection that has greeted, to a server or to a socket's path; `pushed` gets what nobody asked for.

    Raises:
        OSError: there is no server.
        hiredis.ReplyError: it refuses the user or the database.
    """
    loop = asyncio.get_running_loop()
    if isinstance(place, str):
        _, connection = await loop.create_unix_connection(lambda: RedisConnection(pushed), place)
    else:
        _, connection = await loop.create_connection(lambda: RedisConnection(pushed), *place, ssl=tls)
    greeting: list[Command] = []
    if login.password is not None:
        greeting.append(("AUTH", *(() if login.username is None else (login.username,)), login.password))
    if database:
        greeting.append(("SELECT", database))
    greeted = False
    try:
        if greeting:
            await connection.ask(greeting)
        greeted = True
    finally:
        if not greeted:
            connection.close()
    return connection
