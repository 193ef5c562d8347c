"""Files that are there whole, or not at all, whatever ends the process or the machine."""

import os
import secrets
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write beside, flush to disk, rename into place, flush the folder."""
    _written_beside(path, data).replace(path)
    _flush(path.parent)


def create_whole(path: Path, data: bytes) -> bool:
    """The same where nothing has that name; whether nothing had. Of several at once one is first."""
    beside = _written_beside(path, data)
    try:
        os.link(beside, path)
    except FileExistsError:
        return False
    finally:
        beside.unlink()
    _flush(path.parent)
    return True


def _written_beside(path: Path, data: bytes) -> Path:
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return beside


def _flush(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
