"""Where blobs lie: the store that the settings name (docs/blobs.md)."""

from pathlib import Path

from aetheris.runtime.blobs.store import Blobs, FolderBlobs, s3_place


def blobs_at(url: str, data: Path) -> Blobs:
    """The store that AETHERIS_BLOBS names; "" is the folder `blobs` of the data folder.

    Raises:
        ValueError: no such URL.
    """
    if not url:
        return FolderBlobs(data / "blobs")
    from aetheris.runtime.blobs.s3 import S3Blobs  # noqa: PLC0415 - its client is imported only where it is asked for

    return S3Blobs(s3_place(url))
