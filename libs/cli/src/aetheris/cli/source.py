"""Where a command takes a job's records from: a file, which is read without any network."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aetheris.cli import streamfile
from aetheris.cli.console import CommandError, Exit
from aetheris.cli.inputs import read_bytes
from aetheris.proofs import RawRecord, bundle
from aetheris.proofs.evidence import BadEvidence
from aetheris.protocol.records import Record
from aetheris.protocol.topics import Topic

_SHA256 = re.compile(r"[0-9a-f]{64}")


def is_file(target: str) -> bool:
    """A job's id has no slash; where a file has the name of a job, the file is meant."""
    return "/" in target or target.endswith((".jsonl", ".zip")) or Path(target).is_file()


def read_job(path: Path, data: Path) -> "tuple[list[Record], LargeResults]":
    """A job's records, in log order, and its large results: those in the file, else those of this machine.

    Raises:
        CommandError: it can't be read, or is neither an exported stream nor a bundle; names the line.
    """
    content = read_bytes(path)
    if not content.startswith(b"PK"):
        return [_record(raw) for raw in streamfile.parse(content).raw()], LargeResults(data)
    try:
        found = bundle.contents(content)
        return [_record(raw) for raw in found.records], LargeResults(data, found.blobs)
    except BadEvidence as error:
        raise CommandError(Exit.BAD_INPUT, error.rule, f"{path}: {error.message}", file=str(path)) from None


class LargeResults(Mapping[str, Any]):
    """Large results: sha256 → JSON, read when it is needed."""

    def __init__(self, data: Path, held: Mapping[str, bytes] | None = None) -> None:
        self._folder = data / "blobs"
        self._held = held if held is not None else {}

    def __getitem__(self, sha256: str) -> Any:
        try:
            return json.loads(self._held[sha256] if sha256 in self._held else _read_blob(self._folder, sha256))
        except (OSError, ValueError):
            raise KeyError(sha256) from None

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _read_blob(folder: Path, sha256: str) -> bytes:
    """A blob's bytes, unchecked.

    Raises:
        LookupError: no such name.
        OSError: it is not here.
    """
    if not _SHA256.fullmatch(sha256):
        raise LookupError(sha256)
    return (folder / sha256[:2] / sha256).read_bytes()


def _record(raw: RawRecord) -> Record:
    return Record(Topic.JOBS_EVENTS, 0, raw.offset, 0, raw.key, raw.headers, raw.value)
