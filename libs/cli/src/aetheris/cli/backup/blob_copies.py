"""The blobs of a store, a folder or a bucket, copied: none is ever changed, so what is copied last has all named."""

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from aetheris.cli.backup.files import BLOB_LINES, BLOBS, damaged, file_sha256, lines_into, lines_of
from aetheris.cli.console import CommandError, Exit
from aetheris.runtime.base.whole_file import write_whole
from aetheris.runtime.blobs.store import BlobError, Blobs, BlobsUnreachable

_SHA256_DIGITS = 64
_AT_ONCE = 8


async def copy_out(store: Blobs, folder: Path) -> tuple[int, str, list[str]]:
    """Copy a store into a backup: (how many, SHA-256 of the list of them, those whose name is not their hash).

    Raises:
        CommandError: the store does not answer, or has one no more.
    """
    corrupt = list[str]()
    try:
        paths = await store.paths()
        with lines_into(folder / BLOB_LINES) as lines:
            for begin in range(0, len(paths), _AT_ONCE):
                portion = paths[begin : begin + _AT_ONCE]
                for path, sha256 in zip(portion, await _copied(store, portion, folder), strict=True):
                    if _is_named_by_hash(path) and path.rpartition("/")[2] != sha256:
                        corrupt.append(path)
                    lines.write(json.dumps({"path": path, "sha256": sha256}).encode() + b"\n")
    except BlobError as error:
        raise _refused(error, "it has no backup") from None
    return len(paths), file_sha256(folder / BLOB_LINES), corrupt


async def _copied(store: Blobs, paths: list[str], folder: Path) -> list[str]:
    """Their hashes, hex."""

    async def one(path: str) -> str:
        data = await store.get_at(path)
        to = folder / BLOBS / path
        to.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(write_whole, to, data)
        return hashlib.sha256(data).hexdigest()

    return list(await asyncio.gather(*map(one, paths)))


def check(folder: Path, count: int, sha256: str | None) -> None:
    """Whether a backup has each blob as it was.

    Raises:
        CommandError: it has not; the first is named.
    """
    if file_sha256(folder / BLOB_LINES) != sha256:
        raise damaged(folder / BLOB_LINES, "has other bytes than the manifest names")
    named = 0
    for path, expected in _named(folder):
        if file_sha256(path) != expected:
            raise damaged(path, "has other bytes than were copied")
        named += 1
    if named != count:
        raise damaged(folder / BLOB_LINES, f"names {named} blobs, and the manifest says {count}")


async def copy_in(folder: Path, store: Blobs) -> None:
    """Copy a backup's blobs into a store, which may have some of them.

    Raises:
        CommandError: the store does not take them.
    """
    root = folder / BLOBS
    try:
        for path, _ in _named(folder):
            await store.put_at(path.relative_to(root).as_posix(), await asyncio.to_thread(path.read_bytes))
    except BlobError as error:
        raise _refused(error, "no service starts on this log") from None


def _refused(error: BlobError, so: str) -> CommandError:
    unreachable = isinstance(error, BlobsUnreachable)
    message = f"the store of blobs (AETHERIS_BLOBS): {error}; {so}"
    return CommandError(Exit.UNREACHABLE if unreachable else Exit.FAILED, error.code, message)


def _named(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each blob's file below the folder, whoever has written the list."""
    below = (folder / BLOBS).resolve()
    for line in lines_of(folder / BLOB_LINES):
        try:
            said = json.loads(line)
            path, sha256 = folder / BLOBS / str(said["path"]), str(said["sha256"])
        except (ValueError, KeyError, TypeError):
            raise damaged(folder / BLOB_LINES, "has a line that names no blob") from None
        if not path.resolve().is_relative_to(below):
            raise damaged(folder / BLOB_LINES, "names a file outside of the backup")
        yield path, sha256


def _is_named_by_hash(path: str) -> bool:
    parts = path.split("/")
    return len(parts) == 2 and len(parts[1]) == _SHA256_DIGITS  # ab/abcdef…
