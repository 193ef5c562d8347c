"""A connection to one broker: requests out, answers in, in order."""

import asyncio
from collections import deque
from ssl import SSLContext
from typing import cast

from aetheris.runtime.kafka.bootstrap import Login
from aetheris.runtime.kafka.wire import (
    API_VERSIONS,
    NO_ERROR,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Api,
    Malformed,
    error_of,
    framed,
    sasl_answer,
    sasl_handshake,
    sasl_token,
    unspoken,
)

Address = tuple[str, int]
"""Host and port."""

_LENGTH_BYTES = 4
_MOST_BYTES = 128 * 1024 * 1024
_CONNECT_S = 5.0


class Disconnected(Exception):
    """The connection can't be had, or broke: whether a request under way took effect is unknown."""


class Unspoken(Disconnected):
    """The broker doesn't take requests in the versions in which they are made here; the message names them."""


class KafkaConnection(asyncio.Protocol):
    """Made by `connect`; once it is lost it stays so."""

    def __init__(self) -> None:
        self.lost = False
        self._transport: asyncio.Transport | None = None
        self._asked: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        self._count = 0
        self._pieces: list[bytes] = []
        self._gathered = 0
        self._needed = _LENGTH_BYTES

    def call(self, api: Api, body: bytes) -> "asyncio.Future[bytes]":
        """The answer to a request, which is sent at once; its error is Disconnected."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self.lost or self._transport is None:
            answer.set_exception(Disconnected("the connection is lost"))
            return answer
        self._count = (self._count + 1) & 0x7FFFFFFF
        self._asked.append((self._count, answer))
        self._transport.write(framed(api, self._count, body))
        return answer

    def close(self) -> None:
        """Lose it now."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  why it was lost changes nothing
        """asyncio's."""
        self._end()

    def data_received(self, data: bytes) -> None:
        """asyncio's: a large answer comes in pieces, which are joined once."""
        if self._pieces:
            self._pieces.append(data)
            self._gathered += len(data)
            if self._gathered < self._needed:
                return
            data = b"".join(self._pieces)
        self._pieces, self._needed = [], _LENGTH_BYTES
        at = 0
        while len(data) - at >= _LENGTH_BYTES:
            start = at + _LENGTH_BYTES
            size = int.from_bytes(data[at:start], signed=True)
            if not _LENGTH_BYTES <= size <= _MOST_BYTES:
                self.close()
                return
            if start + size > len(data):
                self._needed = _LENGTH_BYTES + size
                break
            self._take(data, start, start + size)
            at = start + size
        if at < len(data) and not self.lost:
            self._pieces, self._gathered = [data[at:]], len(data) - at

    def _take(self, data: bytes, start: int, end: int) -> None:
        body = start + _LENGTH_BYTES
        if not self._asked or self._asked[0][0] != int.from_bytes(data[start:body]):
            self.close()
            return
        _, answer = self._asked.popleft()
        if not answer.done():
            answer.set_result(data[body:end])

    def _end(self) -> None:
        self.lost = True
        asked, self._asked = self._asked, deque()
        for _, answer in asked:
            if not answer.done():
                answer.set_exception(Disconnected("the connection was lost"))


async def connect(address: Address, tls: SSLContext | None, login: Login | None = None) -> KafkaConnection:
    """A new connection, logged in where the brokers ask who one is; its broker takes what is asked over it.

    Raises:
        Unspoken: it doesn't.
        Disconnected.
    """
    host, port = address
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, connection = await asyncio.get_running_loop().create_connection(KafkaConnection, host, port, ssl=tls)
            await _check_versions(connection, address, login)
            if login is not None:
                await _log_in(connection, login)
    except (OSError, TimeoutError) as error:
        raise Disconnected(f"no connection to {host}:{port}: {type(error).__name__}") from None
    return connection


async def _check_versions(connection: KafkaConnection, address: Address, login: Login | None) -> None:
    """Raises Disconnected, and what ends a wait: the connection is closed then."""
    done = False
    try:
        lacking = unspoken(await connection.call(API_VERSIONS, b""), login=login is not None)
        if lacking:
            raise Unspoken(f"the broker at {address[0]}:{address[1]} takes no {', no '.join(lacking)}")
        done = True
    except Malformed:
        raise Disconnected("the broker says no versions") from None
    finally:
        if not done:
            connection.close()


async def _log_in(connection: KafkaConnection, login: Login) -> None:
    """Raises Disconnected: the connection is closed then."""
    done = False
    try:
        code = error_of(await connection.call(SASL_HANDSHAKE, sasl_handshake(login.mechanism)))
        authenticator, challenge = login.authenticator(), None
        while code == NO_ERROR and (said := await authenticator.step(challenge)) is not None:
            code, challenge = sasl_answer(await connection.call(SASL_AUTHENTICATE, sasl_token(said[0])))
        done = code == NO_ERROR
    except (Disconnected, OSError):  # of a timeout, too
        raise
    except Exception as error:  # noqa: BLE001  what a provider of tokens or a broker's challenge leads to
        raise Disconnected(f"the login can't be made: {type(error).__name__}") from None
    finally:
        if not done:
            connection.close()
    if not done:
        raise Disconnected(f"the broker refuses the login: error {code}")
