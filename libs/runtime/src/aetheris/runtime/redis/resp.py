"""One connection to a Redis or Valkey server: commands out, replies in, in order; hiredis packs and parses."""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import hiredis

Command = tuple[str | bytes | int | float, ...]

_PORT = 6379
_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_NOTHING_YET = object()


_packed = cast("Callable[[Command], bytes]", hiredis.pack_command)  # its stub allows one argument


class BadRedisUrl(ValueError):
    """A URL that names no Redis; the message names what is wrong, never the password."""


@dataclass(frozen=True)
class RedisAddress:
    """Where a server is, and what it asks for first."""

    path: str | None
    host: str
    port: int
    tls: ssl.SSLContext | None
    greeting: tuple[Command, ...]


def address_of(url: str) -> RedisAddress:
    """redis://[user:password@]host[:port][/db], rediss://… (with ssl_ca_certs, ssl_certfile, ssl_keyfile), unix://path[?db=n].

    Raises:
        BadRedisUrl.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    known = {"redis": (), "rediss": _TLS_FILES, "unix": ("db",)}.get(parts.scheme)
    if known is None:
        raise BadRedisUrl("a Redis URL begins with redis://, rediss:// or unix://")
    strange = sorted(options.keys() - set(known))
    if strange:
        raise BadRedisUrl(f"a {parts.scheme}:// URL has no option {strange[0]}")
    db = options.get("db", "0") if parts.scheme == "unix" else parts.path.strip("/") or "0"
    try:
        host, port = parts.hostname or "localhost", parts.port or _PORT
        number = int(db)
    except ValueError:
        raise BadRedisUrl("the port and the database of a Redis URL are numbers") from None
    greeting: list[Command] = []
    if parts.password:
        named = (unquote(parts.username),) if parts.username else ()
        greeting.append(("AUTH", *named, unquote(parts.password)))
    if number:
        greeting.append(("SELECT", number))
    path = unquote(parts.path) if parts.scheme == "unix" else None
    return RedisAddress(path, host, port, _tls(options) if parts.scheme == "rediss" else None, tuple(greeting))


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
        if "ssl_certfile" in options:
            context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"))
    except OSError as error:
        raise BadRedisUrl(f"a certificate or key of the Redis URL can't be used: {type(error).__name__}") from None
    return context


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


async def connect(address: RedisAddress, pushed: Callable[[Any], None] | None = None) -> RedisConnection:
    """A connection that has greeted; `pushed` gets what nobody asked for (subscriptions).

    Raises:
        OSError: there is no server.
        hiredis.ReplyError: it refuses the user or the database.
    """
    loop = asyncio.get_running_loop()
    if address.path is not None:
        _, connection = await loop.create_unix_connection(lambda: RedisConnection(pushed), address.path)
    else:
        _, connection = await loop.create_connection(
            lambda: RedisConnection(pushed), address.host, address.port, ssl=address.tls
        )
    greeted = False
    try:
        if address.greeting:
            await connection.ask(address.greeting)
        greeted = True
    finally:
        if not greeted:
            connection.close()
    return connection
