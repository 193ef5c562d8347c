"""Where blobs lie: the store that the settings name (docs/blobs.md)."""

from pathlib import Path

from aetheris.runtime.base.prefix import in_bucket
from aetheris.runtime.blobs.store import Blobs, FolderBlobs, s3_place


def blobs_at(url: str, data: Path, prefix: str = "") -> Blobs:
    """The store that AETHERIS_BLOBS names; "" is the folder `blobs` of the data folder, which is one installation's.

    Raises:
        ValueError: no such URL.
    """
    if not url:
        return FolderBlobs(data / "blobs")
    from aetheris.runtime.blobs.s3 import S3Blobs  # noqa: PLC0415 - its client is imported only where it is asked for

    place = s3_place(url)
    return S3Blobs(place._replace(prefix=in_bucket(place.prefix, prefix)))
