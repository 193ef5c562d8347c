"""Results over 64 KiB, which lie outside of the log: from the store that AETHERIS_BLOBS names, else the data folder."""

import json
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from aetheris.cli.console import CommandError, Exit
from aetheris.proofs.execution import LoadBlob
from aetheris.runtime.base.prefix import check_prefix
from aetheris.runtime.blobs.location import blobs_at
from aetheris.runtime.blobs.store import BlobCorrupt, BlobMissing, Blobs, BlobsUnreachable

_SETTING = "AETHERIS_BLOBS"


def stored(data: Path) -> LoadBlob:
    """The store as the proofs ask it, which check what they get; it is opened when it is first needed.

    The loader raises LookupError where a blob is missing, and CommandError where nobody can say.
    """

    def load(sha256: str) -> bytes:
        with _asked(sha256):
            return store(data).unchecked(sha256)

    return load


class LazyResults(Mapping[str, Any]):
    """Large results: sha256 → JSON, read when it is needed; those of a bundle without any store."""

    def __init__(self, data: Path, held: Mapping[str, bytes] | None = None) -> None:
        self._data = data
        self._held = held if held is not None else {}

    def __getitem__(self, sha256: str) -> Any:
        with _asked(sha256):
            return json.loads(self._held[sha256] if sha256 in self._held else self._read(sha256))

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def _read(self, sha256: str) -> bytes:
        return store(self._data).read(sha256)


@contextmanager
def _asked(sha256: str) -> Generator[None]:
    try:
        yield
    except (BlobMissing, BlobCorrupt, ValueError):
        raise KeyError(sha256) from None
    except BlobsUnreachable as error:
        raise CommandError(Exit.UNREACHABLE, error.code, str(error)) from None


def store(data: Path) -> Blobs:
    """The store itself; raises CommandError where what names it is none."""
    return _store(os.environ.get(_SETTING, ""), data, os.environ.get("AETHERIS_PREFIX", ""))


@cache
def _store(url: str, data: Path, prefix: str) -> Blobs:
    setting = "AETHERIS_PREFIX"
    try:
        check_prefix(prefix)
        setting = _SETTING
        return blobs_at(url, data, prefix)
    except ValueError as error:
        raise CommandError(Exit.BAD_INPUT, "invalid_setting", f"{setting}: {error}", field=setting) from None
