"""The blobs of a folder, copied: none is ever changed, so what is copied last has all that is named."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from aetheris.cli.backup.files import BLOB_LINES, BLOBS, damaged, file_sha256, lines_into, lines_of
from aetheris.runtime.base.whole_file import write_whole

_SHA256_DIGITS = 64

Step = Callable[[str], None]


def copy_out(store: Path, folder: Path) -> tuple[int, str, list[str]]:
    """Copy a store into a backup: (how many, SHA-256 of the list of them, those whose name is not their hash)."""
    count, corrupt = 0, list[str]()
    with lines_into(folder / BLOB_LINES) as lines:
        for path in _blobs(store):
            data = (store / path).read_bytes()
            sha256 = hashlib.sha256(data).hexdigest()
            if _is_named_by_hash(path) and path.name != sha256:
                corrupt.append(str(path))
            to = folder / BLOBS / path
            to.parent.mkdir(parents=True, exist_ok=True)
            write_whole(to, data)
            lines.write(json.dumps({"path": str(path), "sha256": sha256}).encode() + b"\n")
            count += 1
    return count, file_sha256(folder / BLOB_LINES), corrupt


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


def copy_in(folder: Path, store: Path) -> None:
    """Copy a backup's blobs into a store, which may have some of them."""
    for path, _ in _named(folder):
        to = store / path.relative_to(folder / BLOBS)
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists() or to.stat().st_size != path.stat().st_size:
            beside = to.with_name(f".{to.name}.restored")
            shutil.copyfile(path, beside)
            beside.replace(to)


def _blobs(store: Path) -> Iterator[Path]:
    """In one order; what is still being written has a name that begins with a dot."""
    for parent, folders, names in os.walk(store):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path.relative_to(store)


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


def _is_named_by_hash(path: Path) -> bool:
    return len(path.parts) == 2 and len(path.name) == _SHA256_DIGITS  # ab/abcdef…
