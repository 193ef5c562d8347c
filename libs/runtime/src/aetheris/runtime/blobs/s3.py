"""Blobs on S3, or what speaks its protocol: each an object, created only where there is none (docs/blobs.md).

Where it is and who asks follow from the environment variables that every AWS client reads. A request is repeated for
a while: the content names the object, so a second one changes nothing.
"""

import asyncio
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import obstore
import structlog
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.blobs import store
from aetheris.runtime.blobs.store import BlobCorrupt, BlobMissing, Blobs, BlobsUnreachable, S3Place

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_CHECK_WITHIN_S = 5
_CONNECT_WITHIN_S = 3
_ANSWER_WITHIN_S = 30
_TRIES_AGAIN = 3
_TRY_WITHIN_S = 10
_READ_AT_ONCE = 1024 * 1024

_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_BUCKET = "NoSuchBucket"
_REFUSED = re.compile(r"status code: (?:3\d\d|40[0134])\b")
"""Answers that no later try changes: a wrong bucket, region or key."""

_log = structlog.get_logger(__name__)


class BlobsRefused(StartRefused):
    """The bucket is not there, or not for us."""

    code = "blobs_refused"
    passes = True


class S3Blobs(Blobs):
    """In a bucket, below a prefix."""

    def __init__(self, place: S3Place) -> None:
        self._store = _client(place)

    async def check(self) -> None:
        """Whether the bucket is there and lets us list it; without that, S3 says 403 of what is missing."""
        try:
            async with asyncio.timeout(_CHECK_WITHIN_S):
                async for _ in obstore.list(self._store):
                    return
        except (BaseError, OSError) as error:
            if _REFUSED.search(str(error)):
                rule = "AETHERIS_BLOBS names a bucket that is not there, or not for these credentials"
                raise BlobsRefused(f"{rule}: {_reason(error)}") from None
            _log.warning("the store of blobs does not answer", reason=_reason(error))

    async def _keep(self, path: str, data: bytes) -> None:
        with _asked():
            try:
                await obstore.put_async(self._store, path, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                found = await obstore.head_async(self._store, path)
                if found["size"] != len(data):
                    await obstore.put_async(self._store, path, data, use_multipart=False)

    async def _create(self, path: str, data: bytes) -> bool:
        with _asked():
            try:
                await obstore.put_async(self._store, path, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    async def _names(self, folder: str) -> list[str]:
        with _asked():
            found: list[str] = []
            async for part in obstore.list(self._store, folder):
                found += [one["path"].rpartition("/")[2] for one in part]
            return found

    async def _paths(self) -> list[str]:
        with _asked():
            found: list[str] = []
            async for part in obstore.list(self._store):
                found += [one["path"] for one in part]
            return found

    def _load(self, path: str) -> bytes:
        with _asked():
            try:
                return _whole(obstore.get(self._store, path), path)
            except FileNotFoundError as error:
                if _reason(error) == _NO_BUCKET:
                    raise
                raise BlobMissing(path) from None


class S3Files:
    """Files of any size in a bucket, below a prefix: those of a backup."""

    def __init__(self, place: S3Place) -> None:
        self._store = _client(place)

    async def names(self) -> list[str]:
        """Of all that lies there, sorted; raises BlobsUnreachable."""
        with _asked():
            return sorted([one["path"] async for part in obstore.list(self._store) for one in part])

    async def put(self, name: str, path: Path) -> None:
        """Keep a file; raises BlobsUnreachable: it may or may not be kept."""
        with _asked():
            await obstore.put_async(self._store, name, path)

    async def get(self, name: str, path: Path) -> None:
        """Write into a new file what is kept under a name.

        Raises:
            BlobMissing: nothing is.
            BlobsUnreachable: the store can't say.
        """
        with _asked():
            try:
                found = await obstore.get_async(self._store, name)
                with path.open("xb") as file:
                    async for part in found.stream(min_chunk_size=_READ_AT_ONCE):
                        await asyncio.to_thread(file.write, part)
            except FileNotFoundError as error:
                if _reason(error) == _NO_BUCKET:
                    raise
                raise BlobMissing(name) from None


def _client(place: S3Place) -> S3Store:
    endpoint = next((found for name in _ENDPOINTS if (found := os.environ.get(name))), "")
    return S3Store(
        place.bucket,
        prefix=place.prefix or None,
        config={"endpoint": endpoint} if endpoint else {},
        client_options={
            "allow_http": endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=_CONNECT_WITHIN_S),
            "timeout": timedelta(seconds=_ANSWER_WITHIN_S),
        },
        retry_config={"max_retries": _TRIES_AGAIN, "retry_timeout": timedelta(seconds=_TRY_WITHIN_S)},
    )


def _whole(found: "obstore.GetResult", path: str) -> bytes:
    """What comes, however much the server said would; raises BlobCorrupt as soon as that is more than a blob has."""
    parts: list[bytes] = []
    size = 0
    for part in found.stream(min_chunk_size=_READ_AT_ONCE):
        size += len(part)
        if size > store.MOST_BYTES:
            raise BlobCorrupt(path)
        parts.append(part)
    return b"".join(parts)


@contextmanager
def _asked() -> Generator[None]:
    try:
        yield
    except (BaseError, OSError) as error:
        raise BlobsUnreachable(f"the store of blobs does not answer, or refuses: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """S3's own code; the client's message has URLs in it."""
    found = _CODE.search(str(error))
    return found[1] if found is not None else type(error).__name__
