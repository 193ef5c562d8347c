"""Does it answer? One blocking question to a broker, a Redis or a service; never an exception."""

import asyncio
import http.client
import json
import socket
import ssl
import struct
from contextlib import suppress
from typing import Any, BinaryIO, cast
from urllib.parse import SplitResult, urlsplit

from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.kafka.bootstrap import PLAIN, Login, LoginUnusable, login_of, servers_of
from aetheris.runtime.kafka.connection import Disconnected, connect
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.kafka.wire import (
    NO_ERROR,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Api,
    error_of,
    framed,
    sasl_handshake,
    sasl_token,
)
from aetheris.runtime.process.settings import RuntimeSettings, load
from aetheris.runtime.redis.client import Redis, RedisUnavailable
from aetheris.runtime.redis.location import BadRedisUrl

TIMEOUT_S = 2.0
_METADATA, _INT_BYTES = Api(3, 1), 4

# Metadata request, version 1, correlation id 1, client "aetheris", no topics (Kafka protocol guide).
_METADATA_REQUEST = struct.pack(">hhih8si", 3, 1, 1, 8, b"aetheris", 0)


def kafka_answers(bootstrap: str) -> bool:
    """Whether one of the brokers at host:port[,host:port][?login=FILE] knows a live broker and the controller."""
    try:
        login = login_of(bootstrap)
    except LoginUnusable:
        return False
    return any(_broker_answers(address.strip(), login) for address in servers_of(bootstrap).split(","))


def brokers_answer(bootstrap: str) -> bool:
    """Whether brokers that are others' let us in, by whatever login and TLS the environment says."""

    async def answers(server: str) -> bool:
        host, _, port = server.strip().rpartition(":")
        connection = await connect((host, int(port)), tls, login)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                found = await connection.call(_METADATA, struct.pack(">i", 0))
        finally:
            connection.close()
        return _has_controller(bytes(_INT_BYTES) + found)

    try:
        login, tls = login_of(bootstrap), tls_context(load(RuntimeSettings))
    except StartRefused:
        return False
    for server in servers_of(bootstrap).split(","):
        with suppress(Disconnected, TimeoutError, ValueError, struct.error):
            if asyncio.run(answers(server)):
                return True
    return False


def redis_answers(url: str) -> bool:
    """Whether the one server at that Redis url answers a PING; one that asks for a password does."""
    try:
        with _redis_connection(urlsplit(url)) as connection:
            connection.sendall(b"PING\r\n")
            reply = connection.recv(64)
    except (OSError, ValueError):
        return False
    return reply.startswith((b"+PONG", b"-NOAUTH"))


def why_redis_is_unready(url: str) -> str | None:
    """What is wrong with a Redis that is others', or with its URL, as services see it; None where nothing is."""

    async def asked() -> str | None:
        redis = Redis(url, TIMEOUT_S)
        try:
            await redis.each(lambda _tag: [("PING",)])
            return redis.evicting()
        except RedisUnavailable as error:
            return f"does not answer: {error}"
        finally:
            await redis.close()

    try:
        return asyncio.run(asked())
    except BadRedisUrl as error:
        return str(error)


def http_answers(port: int, path: str) -> bool:
    """Whether GET 127.0.0.1:port/path is answered with a 2xx."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        return 200 <= connection.getresponse().status < 300
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def http_says(port: int, path: str) -> dict[str, Any]:
    """The JSON object at 127.0.0.1:port/path, whatever its status; {} where there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        found = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _broker_answers(address: str, login: Login | None) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with (
            socket.create_connection((host, int(port)), TIMEOUT_S) as connection,
            connection.makefile("rb") as stream,
        ):
            if login is not None:
                asked = (
                    (SASL_HANDSHAKE, sasl_handshake(PLAIN)),
                    (SASL_AUTHENTICATE, sasl_token(login.token())),
                )
                for api, body in asked:
                    connection.sendall(framed(api, 1, body))
                    if error_of(_answer(stream)[4:]) != NO_ERROR:
                        return False
            connection.sendall(struct.pack(">i", len(_METADATA_REQUEST)) + _METADATA_REQUEST)
            return _has_controller(_answer(stream))
    except (OSError, ValueError, struct.error):
        return False


def _answer(stream: BinaryIO) -> bytes:
    """The next answer, from its correlation id on."""
    (length,) = struct.unpack(">i", stream.read(4))
    return stream.read(length)


def _has_controller(response: bytes) -> bool:
    """Reads correlation id, the brokers (id, host, port, rack) and the controller's id."""
    (brokers,) = struct.unpack_from(">i", response, 4)
    position = 8
    for _ in range(brokers):
        position += 4
        (host_length,) = struct.unpack_from(">h", response, position)
        position += 2 + host_length + 4
        (rack_length,) = struct.unpack_from(">h", response, position)
        position += 2 + max(rack_length, 0)
    (controller,) = struct.unpack_from(">i", response, position)
    return brokers > 0 and controller >= 0


def _redis_connection(url: SplitResult) -> socket.socket:
    if url.scheme == "unix":
        return _unix_connection(url.path)
    host = url.hostname or "localhost"
    plain = socket.create_connection((host, url.port or 6379), TIMEOUT_S)
    if url.scheme == "rediss":
        return ssl.create_default_context().wrap_socket(plain, server_hostname=host)
    return plain


def _unix_connection(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(TIMEOUT_S)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection
