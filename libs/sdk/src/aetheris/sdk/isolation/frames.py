"""Messages between an executor and its tools' processes: a length of four bytes, and so many bytes of JSON.

Neither side believes the other: a frame that is too long, no JSON, nested too deep or no object ends the conversation.
"""

import asyncio
import json
import socket
from typing import Any, cast

from aetheris.protocol.base.recordable import MAX_DEPTH, is_deep

LARGEST = 32 * 1024 * 1024
"""Bytes of a frame: a call's arguments, or what it came to."""
_LENGTH = 4
_AROUND = 8
"""Levels that a frame has around a result."""


class BadFrame(Exception):
    """The other side says what can't be read; its words are in no message."""


def packed(message: dict[str, Any]) -> bytes:
    """A frame.

    Raises:
        BadFrame: it would be too long.
    """
    data = json.dumps(message, separators=(",", ":")).encode()
    if len(data) > LARGEST:
        raise BadFrame("too long")
    return len(data).to_bytes(_LENGTH, "big") + data


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """The next frame, awaited without a loop; None where the other side has hung up.

    Raises:
        BadFrame.
    """
    head = _received(connection, _LENGTH)
    return None if head is None else _read(_received(connection, _size(head)))


async def next_of(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next frame; None where the other side has hung up.

    Raises:
        BadFrame.
    """
    try:
        head = await reader.readexactly(_LENGTH)
        return _read(await reader.readexactly(_size(head)))
    except (asyncio.IncompleteReadError, OSError):
        return None


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


def _read(data: bytes | None) -> dict[str, Any] | None:
    if data is None:
        return None
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise BadFrame("no JSON") from None
    if not isinstance(found, dict) or is_deep(found, MAX_DEPTH + _AROUND):
        raise BadFrame("no object, or too deep")
    return cast("dict[str, Any]", found)
