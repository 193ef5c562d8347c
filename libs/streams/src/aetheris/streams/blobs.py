"""Large values, by their hash: a folder, written once, verified on every read."""

import asyncio
import hashlib
import os
import secrets
from pathlib import Path
from typing import NamedTuple

INLINE_LIMIT = 64 * 1024
"""Bytes up to which a value travels in its record; larger ones become a blob and a reference."""


class BlobRef(NamedTuple):
    """What names a blob: hex SHA-256 of its bytes, and their number."""

    sha256: str
    size: int


class BlobMissing(Exception):
    """The store has no blob of this hash."""

    code = "blob_missing"


class BlobCorrupt(Exception):
    """A blob's bytes do not have the hash that names it: restore it from a copy."""

    code = "blob_corrupt"


class Blobs:
    """A content-addressed folder: `ab/abcdef…`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, data: bytes) -> BlobRef:
        """Keep `data`; it is on disk when this returns, whole or not at all."""
        return await asyncio.to_thread(self._put, data)

    async def get(self, ref: BlobRef) -> bytes:
        """The blob's bytes.

        Raises:
            BlobMissing: there is none.
            BlobCorrupt: its bytes have changed.
        """
        return await asyncio.to_thread(self.read, ref.sha256)

    def read(self, sha256: str) -> bytes:
        """As `get`, by the hash alone; blocks.

        Raises:
            BlobMissing: there is none.
            BlobCorrupt: its bytes have changed.
        """
        try:
            data = self._path(sha256).read_bytes()
        except FileNotFoundError:
            raise BlobMissing(sha256) from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise BlobCorrupt(sha256)
        return data

    def _path(self, sha256: str) -> Path:
        return self._folder / sha256[:2] / sha256

    def _put(self, data: bytes) -> BlobRef:
        ref = BlobRef(hashlib.sha256(data).hexdigest(), len(data))
        path = self._path(ref.sha256)
        if not path.exists() or path.stat().st_size != ref.size:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, data)
        return ref


def _write(path: Path, data: bytes) -> None:
    """Write beside, flush to disk, rename into place, flush the folder."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
