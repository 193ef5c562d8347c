"""The store of ranges and files: a folder, or S3."""

from pathlib import Path

from aetheris.archiver.core.ranges import FOLDER, SealRange, begin_of, range_path, read_range
from aetheris.runtime.base.prefix import in_bucket
from aetheris.runtime.blobs.store import BlobMissing, Blobs, FolderBlobs, s3_place

S3 = "s3://"


def store_at(url: str, prefix: str = "") -> Blobs:
    """What AETHERIS_PARQUET names: a folder, or s3://bucket[/prefix].

    Raises:
        ValueError: no such URL.
    """
    if not url.startswith(S3):
        return FolderBlobs(Path(url))
    from aetheris.runtime.blobs.s3 import S3Blobs  # noqa: PLC0415 - its client is imported only where it is asked for

    place = s3_place(url)
    return S3Blobs(place._replace(prefix=in_bucket(place.prefix, prefix)))


class ParquetStore:
    """Ranges are created once; a file may be written again, with the same rows."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def last(self) -> SealRange | None:
        """The range that was created last; None where there is none.

        Raises:
            BlobsUnreachable, BadRange.
        """
        begins = [begin for name in await self._blobs.names_at(FOLDER) if (begin := begin_of(name)) is not None]
        return await self.range_at(max(begins)) if begins else None

    async def range_at(self, begin: int) -> SealRange | None:
        """The range that begins there, if there is one.

        Raises:
            BlobsUnreachable, BadRange.
        """
        try:
            return read_range(await self._blobs.get_at(range_path(begin)), begin)
        except BlobMissing:
            return None

    async def settle(self, wanted: SealRange) -> SealRange:
        """The range that begins where this one does: this one, where nobody was first.

        Raises:
            BlobsUnreachable, BadRange.
        """
        if await self._blobs.create_at(wanted.path, wanted.dump()):
            return wanted
        return await self.range_at(wanted.begin) or wanted

    async def put(self, path: str, data: bytes) -> None:
        """A file, whole; raises BlobsUnreachable."""
        await self._blobs.put_at(path, data)
