"""The secrets of those who have lived under a name, kept for who has its lock next (docs/adr/0009-signed-records.md).

Beside the lock's file, and not in it: whatever a tool starts inherits that one, and could read what it says.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from aetheris.protocol.base.words import MAX_REMEMBERED, SECRET_BYTES, LifeWords


class LifeSecrets:
    """Of one name; only who has its lock reads or writes them."""

    def __init__(self, data: Path, worker_id: str) -> None:
        self._path = data / "workers" / f"{worker_id}.secrets"

    def of(self, incarnations: Iterable[str]) -> Mapping[str, LifeWords]:
        """Their words, by incarnation; of those whose secret is kept."""
        known = {words.incarnation: words for words in map(LifeWords.of, self._kept())}
        return {one: known[one] for one in incarnations if one in known}

    def keep(self, secret: bytes) -> None:
        """On disk before it returns, for its owner's eyes alone."""
        lines = "".join(f"{one.hex()}\n" for one in (*self._kept()[1 - MAX_REMEMBERED :], secret))
        beside = self._path.with_suffix(".new")
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, lines.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        beside.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _kept(self) -> list[bytes]:
        lines: list[str] = []
        with suppress(FileNotFoundError):
            lines = self._path.read_text(errors="replace").splitlines()
        found: list[bytes] = []
        for line in lines:
            with suppress(ValueError):
                found.append(bytes.fromhex(line))
        return [one for one in found if len(one) == SECRET_BYTES]
