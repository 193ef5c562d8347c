"""Backups in a bucket: written into a folder first, and put there file by file, the manifest last."""

import asyncio
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aetheris.cli.backup.files import MANIFEST
from aetheris.cli.console import CommandError, Exit
from aetheris.runtime.blobs.store import BlobError, BlobMissing, BlobsUnreachable, s3_place

if TYPE_CHECKING:
    from aetheris.runtime.blobs.s3 import S3Files

S3 = "s3://"
_AT_ONCE = 8


@contextmanager
def folder_to(where: str) -> Generator[Path]:
    """The folder that a backup is written into; where a bucket is named, it is put there when the block ends.

    Raises:
        CommandError: the bucket is none, has something there, or does not answer.
    """
    if not where.startswith(S3):
        yield Path(where)
        return
    with _asked(where), tempfile.TemporaryDirectory(prefix="aetheris-backup-") as staging:
        asyncio.run(_check_empty(where))
        folder = Path(staging) / "backup"
        yield folder
        asyncio.run(_put(where, folder))


@contextmanager
def folder_from(where: str) -> Generator[Path]:
    """The folder that a backup is read from; one of a bucket is fetched first, whole.

    Raises:
        CommandError: the bucket is none, or does not answer.
    """
    if not where.startswith(S3):
        yield Path(where)
        return
    with tempfile.TemporaryDirectory(prefix="aetheris-backup-") as staging:
        with _asked(where):
            asyncio.run(_get(where, Path(staging)))
        yield Path(staging)


async def _check_empty(where: str) -> None:
    if await _files(where).names():
        raise CommandError(Exit.BAD_INPUT, "not_empty", f"{where} is not empty: name a new prefix", field="TO")


async def _put(where: str, folder: Path) -> None:
    files, turns = _files(where), asyncio.Semaphore(_AT_ONCE)

    async def one(path: Path) -> None:
        async with turns:
            await files.put(path.relative_to(folder).as_posix(), path)

    await asyncio.gather(*map(one, _but_manifest(folder)))
    await files.put(MANIFEST, folder / MANIFEST)


async def _get(where: str, folder: Path) -> None:
    files, turns = _files(where), asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> None:
        async with turns:
            await files.get(name, _place(folder, name))

    await asyncio.gather(*map(one, await files.names()))


def _but_manifest(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MANIFEST]


def _place(folder: Path, name: str) -> Path:
    """Where an object's file goes, whoever has named it.

    Raises:
        CommandError: outside of the folder.
    """
    to = folder / name
    if ".." in to.parts:
        raise CommandError(Exit.FAILED, "backup_damaged", f"{name} is the name of no file of a backup")
    to.parent.mkdir(parents=True, exist_ok=True)
    return to


def _files(where: str) -> "S3Files":
    from aetheris.runtime.blobs.s3 import S3Files  # noqa: PLC0415 - its client is imported only where it is asked for

    try:
        place = s3_place(where)
    except ValueError as error:
        raise CommandError(Exit.BAD_INPUT, "bad_usage", f"{where}: {error}") from None
    return S3Files(place)


@contextmanager
def _asked(where: str) -> Generator[None]:
    try:
        yield
    except BlobsUnreachable as error:
        raise CommandError(Exit.UNREACHABLE, error.code, f"{where}: {error}") from None
    except BlobMissing as error:
        raise CommandError(Exit.FAILED, "backup_damaged", f"{where}: {error} is gone") from None
    except BlobError as error:
        raise CommandError(Exit.FAILED, error.code, f"{where}: {error}") from None
