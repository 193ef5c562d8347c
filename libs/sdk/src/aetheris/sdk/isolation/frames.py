"""Messages between an executor and its tools' processes: a length of four bytes, and so many bytes of JSON.

Neither side believes the other: a frame that is too long, no JSON, nested too deep or no object ends the conversation.
To parse one holds up the whole process that does it, so what a tool's process says is measured first.
"""

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any, cast

from aetheris.protocol.base.recordable import MAX_DEPTH, is_deep

LARGEST = 32 * 1024 * 1024
"""Bytes of a frame: a call's arguments, or what it came to."""
LARGEST_OUTPUT = 256 * 1024
"""Bytes of a frame that holds a line of what a call prints or logs."""
MOST_VALUES = 600_000
"""Values of a frame, each of which costs time to parse."""
_VALUES_OF_OUTPUT = 32
_LAST = b'{"said":'
_LENGTH = 4
_AROUND = 8
"""Levels that a frame has around a result."""
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


class BadFrame(Exception):
    """The other side says what can't be read; its words are in no message."""


def packed(message: dict[str, Any]) -> bytes:
    """A frame.

    Raises:
        BadFrame: it would be too long.
    """
    data = _ENCODER.encode(message).encode("utf-8", "backslashreplace")
    if len(data) > LARGEST:
        raise BadFrame("too long")
    return len(data).to_bytes(_LENGTH, "big") + data


class FrameProtocol(asyncio.Protocol):
    """Hears what a module's process says, frame by frame, as soon as each is there."""

    def __init__(self, heard: Callable[[dict[str, Any]], None], over: Callable[[BadFrame | None], None]) -> None:
        """`over`: it has hung up, or says what can't be read; nothing is heard behind that."""
        self._heard = heard
        self._over: Callable[[BadFrame | None], None] | None = over
        self._held = bytearray()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._held += data
        at = 0
        try:
            while self._over is not None and len(self._held) - at >= _LENGTH:
                begin = at + _LENGTH
                end = begin + _size(bytes(self._held[at:begin]))
                if len(self._held) < end:
                    break
                at = end
                self._heard(_measured(bytes(self._held[begin:end]), MOST_VALUES))
        except BadFrame as refused:
            self._end(refused)
        del self._held[:at]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  why changes nothing
        """See asyncio.Protocol."""
        self._end(None)

    def _end(self, refused: BadFrame | None) -> None:
        over, self._over = self._over, None
        if over is not None:
            over(refused)


def has_more(data: bytes, most: int) -> bool:
    """Whether JSON holds more than so many values and keys; what texts hold doesn't count."""
    if _delimiters(data) <= most:
        return False
    whole = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if whole.count(b'"') > 4 * most:
        return True
    return sum(map(_delimiters, whole.split(b'"')[::2])) > most


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """The next frame, awaited without a loop; None where the other side has hung up.

    Raises:
        BadFrame.
    """
    head = _received(connection, _LENGTH)
    data = None if head is None else _received(connection, _size(head))
    return None if data is None else _read(data)


async def next_of(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next frame of what a module's process says; None where it has hung up.

    Raises:
        BadFrame.
    """
    data = await _received_from(reader)
    return None if data is None else _measured(data, MOST_VALUES)


async def next_of_call(reader: asyncio.StreamReader) -> tuple[dict[str, Any], int] | None:
    """The next frame of what a call says, and its bytes: its last word, or a line; None where it has hung up.

    Raises:
        BadFrame.
    """
    data = await _received_from(reader)
    if data is None:
        return None
    if data.startswith(_LAST):
        return _measured(data, MOST_VALUES), len(data)
    if len(data) > LARGEST_OUTPUT:
        raise BadFrame("a line is too long")
    return _measured(data, _VALUES_OF_OUTPUT), len(data)


async def _received_from(reader: asyncio.StreamReader) -> bytes | None:
    try:
        head = await reader.readexactly(_LENGTH)
        return await reader.readexactly(_size(head))
    except (asyncio.IncompleteReadError, OSError):
        return None


def _measured(data: bytes, most: int) -> dict[str, Any]:
    if has_more(data, most):
        raise BadFrame("too many values")
    return _read(data)


def _delimiters(data: bytes) -> int:
    return data.count(b",") + data.count(b":") + data.count(b"[") + data.count(b"{")


def _received(connection: socket.socket, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        piece = connection.recv(min(size - len(found), 1 << 20))
        if not piece:
            return None
        found += piece
    return bytes(found)


def _size(head: bytes) -> int:
    size = int.from_bytes(head, "big")
    if size > LARGEST:
        raise BadFrame("too long")
    return size


def _read(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise BadFrame("no JSON") from None
    may_be_deep = data.count(b"[") + data.count(b"{") > MAX_DEPTH + _AROUND
    if not isinstance(found, dict) or (may_be_deep and is_deep(found, MAX_DEPTH + _AROUND)):
        raise BadFrame("no object, or too deep")
    return cast("dict[str, Any]", found)
