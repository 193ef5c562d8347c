"""Large values, by their hash: written once, verified on every read; in a folder, or on S3 (docs/blobs.md).

BlobError
├── BlobMissing         the store answers, and has no such blob
├── BlobCorrupt         its bytes do not have the hash that names it
└── BlobsUnreachable    nobody can say: the store does not answer, or refuses
"""

import asyncio
import hashlib
import os
import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import NamedTuple

from aetheris.runtime.base.whole_file import create_whole, write_whole

MOST_BYTES = 257 * 1024 * 1024
"""Of a blob: more than any bundle has. Who may write to the store fills nobody's memory."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_S3 = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?P<prefix>(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*)/?")


class BlobName(NamedTuple):
    """What names a blob: hex SHA-256 of its bytes, and their number."""

    sha256: str
    size: int

    @classmethod
    def of(cls, data: bytes) -> "BlobName":
        """That of these bytes."""
        return cls(hashlib.sha256(data).hexdigest(), len(data))


class BlobError(Exception):
    """A blob that can't be had, or not be kept."""

    code = "blob_error"


class BlobMissing(BlobError):
    """The store has no blob of this hash."""

    code = "blob_missing"


class BlobCorrupt(BlobError):
    """A blob's bytes do not have the hash that names it: restore it from a copy."""

    code = "blob_corrupt"


class BlobsUnreachable(BlobError):
    """The store does not answer, or refuses: whether it has the blob is not known."""

    code = "blobs_unreachable"


class S3Place(NamedTuple):
    """Where blobs lie on S3."""

    bucket: str
    prefix: str


def s3_place(url: str) -> S3Place:
    """What s3://bucket or s3://bucket/prefix names.

    Raises:
        ValueError: it is neither; the message does not repeat it.
    """
    found = _S3.fullmatch(url)
    if found is None:
        raise ValueError("neither s3://bucket nor s3://bucket/prefix")
    return S3Place(found["bucket"], found["prefix"].strip("/"))


class Blobs(ABC):
    """A content-addressed store: `ab/abcdef…`."""

    async def put(self, data: bytes) -> BlobName:
        """Keep `data`; it is kept when this returns, whole or not at all. Again is the same.

        Raises:
            BlobsUnreachable: it may or may not be kept.
        """
        ref = BlobName.of(data)
        await self._keep(path_of(ref.sha256), data)
        return ref

    async def put_at(self, path: str, data: bytes) -> None:
        """As `put`, under a name that says itself which bytes it has.

        Raises:
            BlobsUnreachable: it may or may not be kept.
        """
        await self._keep(path, data)

    async def create_at(self, path: str, data: bytes) -> bool:
        """Keep `data` under a name that nothing has; whether nothing had it. Of several at once one is first.

        Raises:
            BlobsUnreachable: it may or may not be kept.
        """
        return await self._create(path, data)

    async def names_at(self, folder: str) -> list[str]:
        """The names of what lies right below a folder, sorted; none where there is no such folder.

        Raises:
            BlobsUnreachable: the store can't say.
        """
        return sorted(await self._names(folder))

    async def paths(self) -> list[str]:
        """The name of all that is there, at any depth, sorted; what is still being written is not.

        Raises:
            BlobsUnreachable: the store can't say.
        """
        return sorted(await self._paths())

    def read_at(self, path: str, sha256: str) -> bytes:
        """What was put there, which has this hash; blocks.

        Raises:
            BlobMissing, BlobCorrupt, BlobsUnreachable.
        """
        return _checked(self._load(path), sha256, path)

    async def get_at(self, path: str) -> bytes:
        """The bytes of a `put_at`, as they are.

        Raises:
            BlobMissing: there are none.
            BlobsUnreachable: the store can't say.
        """
        return await asyncio.to_thread(self._load, path)

    async def get(self, ref: BlobName) -> bytes:
        """The blob's bytes.

        Raises:
            BlobMissing: there is none.
            BlobCorrupt: its bytes have changed.
            BlobsUnreachable: the store can't say.
        """
        return await asyncio.to_thread(self.read, ref.sha256)

    def read(self, sha256: str) -> bytes:
        """As `get`, by the hash alone; blocks."""
        return _checked(self.unchecked(sha256), sha256, sha256)

    def unchecked(self, sha256: str) -> bytes:
        """As `read`, for whoever checks the hash and has a word of his own for a wrong one; blocks."""
        if not _SHA256.fullmatch(sha256):
            raise BlobMissing(sha256)
        try:
            return self._load(path_of(sha256))
        except BlobMissing:
            raise BlobMissing(sha256) from None

    @abstractmethod
    async def check(self) -> None:
        """Whether it can be relied on, as far as can be seen; one that does not answer is not judged.

        Raises:
            Refused: it can't.
        """

    @abstractmethod
    async def _keep(self, path: str, data: bytes) -> None:
        """Write it, unless something of its size is there; raises BlobsUnreachable."""

    @abstractmethod
    async def _create(self, path: str, data: bytes) -> bool:
        """Write it unless something is there, whole or not at all; raises BlobsUnreachable."""

    @abstractmethod
    async def _names(self, folder: str) -> list[str]:
        """What lies right below; raises BlobsUnreachable."""

    @abstractmethod
    async def _paths(self) -> list[str]:
        """What lies at any depth; raises BlobsUnreachable."""

    @abstractmethod
    def _load(self, path: str) -> bytes:
        """Its bytes as they are; raises BlobMissing, BlobsUnreachable. Blocks."""


class FolderBlobs(Blobs):
    """In a folder that all services see."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def check(self) -> None:
        """Nothing to see: it is made when it is first written to."""

    async def _keep(self, path: str, data: bytes) -> None:
        try:
            await asyncio.to_thread(self._write, self._folder / path, data)
        except OSError as error:
            raise BlobsUnreachable(f"the folder of blobs can't be written: {type(error).__name__}") from None

    async def _create(self, path: str, data: bytes) -> bool:
        try:
            return await asyncio.to_thread(self._made, self._folder / path, data)
        except OSError as error:
            raise BlobsUnreachable(f"the folder of blobs can't be written: {type(error).__name__}") from None

    async def _names(self, folder: str) -> list[str]:
        try:
            found = await asyncio.to_thread(os.listdir, self._folder / folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BlobsUnreachable(f"the folder of blobs can't be read: {type(error).__name__}") from None
        return [name for name in found if not name.startswith(".")]

    async def _paths(self) -> list[str]:
        try:
            return await asyncio.to_thread(self._walked)
        except OSError as error:
            raise BlobsUnreachable(f"the folder of blobs can't be read: {type(error).__name__}") from None

    def _walked(self) -> list[str]:
        found: list[str] = []
        for parent, folders, names in os.walk(self._folder):
            folders.sort()
            for name in names:
                path = Path(parent, name)
                if not name.startswith(".") and path.is_file() and not path.is_symlink():
                    found.append(path.relative_to(self._folder).as_posix())
        return found

    def _load(self, path: str) -> bytes:
        try:
            with (self._folder / path).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            raise BlobMissing(path) from None
        except OSError as error:
            raise BlobsUnreachable(f"the folder of blobs can't be read: {type(error).__name__}") from None
        if len(data) > MOST_BYTES:
            raise BlobCorrupt(path)
        return data

    def _write(self, path: Path, data: bytes) -> None:
        if not path.exists() or path.stat().st_size != len(data):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)

    def _made(self, path: Path, data: bytes) -> bool:
        path.parent.mkdir(parents=True, exist_ok=True)
        return create_whole(path, data)


def _checked(data: bytes, sha256: str, name: str) -> bytes:
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BlobCorrupt(name)
    return data


def path_of(sha256: str) -> str:
    """Where a blob lies in its store."""
    return f"{sha256[:2]}/{sha256}"
