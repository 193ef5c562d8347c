"""A backup as it lies in its folder: what names every byte of it, and its records, a line each (docs/backup.md).

manifest.json               written last: a folder without one is no backup
log/TOPIC/PARTITION.gz      records, a JSON line each
blobs.gz                    a JSON line for each blob: path, SHA-256
blobs/…                     as they lie in the store
keys.age                    keys and tokens, encrypted, where somebody is named who may open it
"""

import base64
import binascii
import gzip
import hashlib
import json
import zlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aetheris.cli.console import CommandError, Exit
from aetheris.protocol.base.records import Record
from aetheris.runtime.base.whole_file import write_whole

MANIFEST = "manifest.json"
BLOBS, BLOB_LINES = "blobs", "blobs.gz"
_VERSION = 1
_LEVEL = 3
_LARGEST_MANIFEST = 64 * 1024 * 1024
_LONGEST_LINE = 16 * 1024 * 1024
"""No record is as long: a broker takes 1 MiB by default."""


class CopiedPartition(BaseModel):
    """The records of a partition from `begin` on, below `end`; `lines_sha256` is of their lines, unpacked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partition: int = Field(ge=0)
    begin: int = Field(ge=0)
    end: int = Field(ge=0)
    records: int = Field(ge=0)
    lines_sha256: str
    file_sha256: str


class SealTree(BaseModel):
    """The log of seals as it is in the backup."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: int
    root: str
    """Hex."""
    ahead: int = 0
    """So many of its lines came while the end of jobs.events was asked for: they may be of records behind it."""


class BackupManifest(BaseModel):
    """What a backup is of, and what names its bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = _VERSION
    taken_at: str
    """RFC 3339, by the clock of who took it: before the end of any partition was asked for."""
    partitions: int = Field(ge=1)
    topics: Mapping[str, tuple[CopiedPartition, ...]]
    marks: Mapping[str, Mapping[str, Mapping[int, int]]]
    """Group → topic → partition → where it reads from."""
    cut: tuple[int, ...] = ()
    """Partitions of jobs.events that lack what a service had read of them: what else is in it may say more."""
    seals: SealTree
    roots: tuple[str, ...]
    """Key ids under which its jobs were created; none: their records are not signed."""
    blobs: int | None
    """How many are in it; None: they are not."""
    blobs_sha256: str | None = None
    blobs_at: str | None = None
    """The bucket that they lay in; None: a data folder."""
    keys_sha256: str | None = None
    """Of keys.age; None: no key is in it."""


@dataclass
class LineWriter:
    """Writes lines into a packed file, and says afterwards what they were."""

    file: gzip.GzipFile
    count: int = 0
    hash: Any = field(default_factory=hashlib.sha256)

    def write(self, line: bytes) -> None:
        """One more, which has its end with it."""
        self.file.write(line)
        self.hash.update(line)
        self.count += 1


@contextmanager
def lines_into(path: Path) -> Generator[LineWriter]:
    """A packed file of lines, the same for the same lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as raw, gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as packed:
        yield LineWriter(packed)


def log_path(topic: str, partition: int) -> Path:
    """Where the records of a partition lie in a backup."""
    return Path("log") / topic / f"{partition}.gz"


def written(record: Record) -> bytes:
    """A record as a line."""
    body = {
        "offset": record.offset,
        "at": record.timestamp_ms,
        "key": None if record.key is None else _text(record.key),
        "headers": [[name, _text(value)] for name, value in record.headers],
        "value": _text(record.value),
    }
    return json.dumps(body, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"


def read_record(topic: str, partition: int, line: bytes) -> Record:
    """The record in a line.

    Raises:
        ValueError: there is none.
    """
    try:
        body: dict[str, Any] = json.loads(line)
        key = None if body["key"] is None else _bytes(body["key"])
        headers = tuple((str(name), _bytes(value)) for name, value in body["headers"])
        return Record(topic, partition, int(body["offset"]), int(body["at"]), key, headers, _bytes(body["value"]))
    except (KeyError, TypeError, RecursionError, binascii.Error) as error:
        raise ValueError(type(error).__name__) from None


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of a file.

    Raises:
        CommandError: it can't be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise damaged(path, f"can't be read ({type(error).__name__})") from None


def save(folder: Path, manifest: BackupManifest) -> str:
    """Write the manifest, after all else; its SHA-256."""
    data = manifest.model_dump_json(indent=1).encode() + b"\n"
    write_whole(folder / MANIFEST, data)
    return hashlib.sha256(data).hexdigest()


def load(folder: Path) -> tuple[BackupManifest, str]:
    """The manifest of a backup, and its SHA-256.

    Raises:
        CommandError: there is none, or it is none that this version reads.
    """
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_MANIFEST)
    except FileNotFoundError:
        message = f"{folder} is no backup: it has no {MANIFEST}, which is written last. Was it taken to its end?"
        raise CommandError(Exit.BAD_INPUT, "no_backup", message) from None
    except OSError as error:
        raise damaged(path, f"can't be read ({type(error).__name__})") from None
    try:
        found = BackupManifest.model_validate_json(data)
    except ValidationError as error:
        fields = sorted({".".join(map(str, one["loc"])) for one in error.errors()})[:3]
        raise damaged(path, f"is no manifest that this version reads: {', '.join(fields) or 'no JSON'}") from None
    if found.format != _VERSION:
        raise damaged(path, f"has format {found.format}, and this version reads {_VERSION}")
    return found, hashlib.sha256(data).hexdigest()


def records_of(folder: Path, topic: str, of: CopiedPartition) -> Iterator[Record]:
    """The records of a partition, each checked against the one before it; the whole against its hash at the end.

    Raises:
        CommandError: the file is not what the manifest says.
    """
    path = folder / log_path(topic, of.partition)
    hashed, count, at = hashlib.sha256(), 0, of.begin
    for line in lines_of(path):
        hashed.update(line)
        try:
            record = read_record(topic, of.partition, line)
        except ValueError:
            raise damaged(path, f"has no record in line {count + 1}") from None
        if not at <= record.offset < of.end:
            raise damaged(path, f"has offset {record.offset} in line {count + 1}, out of its order")
        count, at = count + 1, record.offset + 1
        yield record
    if count != of.records or hashed.hexdigest() != of.lines_sha256:
        raise damaged(path, "has other records than the manifest names")


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a packed file.

    Raises:
        CommandError: it can't be read.
    """
    try:
        with gzip.open(path, "rb") as file:
            while line := file.readline(_LONGEST_LINE):
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, f"can't be unpacked ({type(error).__name__})") from None


def damaged(path: Path, why: str) -> CommandError:
    """That a file of a backup is not what was written there."""
    return CommandError(Exit.FAILED, "backup_damaged", f"{path} {why}", file=str(path))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
