"""Files that hold keys: whole or not at all, and readable by us alone."""

import os
from pathlib import Path


def write_once(path: Path, content: bytes) -> None:
    """Make the file if it isn't there; of two that try, the first wins."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.touch(mode=0o600)
    beside.write_bytes(content)
    try:
        path.hardlink_to(beside)
    except FileExistsError:
        pass
    finally:
        beside.unlink()
