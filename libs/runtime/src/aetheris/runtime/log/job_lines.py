"""The lines of jobs.index in memory: whole for jobs that live, in 41 bytes for those that have ended.

Of an ended job a service must know for ever what it was asked for (a repeat of its submission is no new job) and where
its stream begins; who submitted it, and when, the gateway's list says (docs/architecture.md, "The index of jobs").
"""

import re
import sqlite3
import struct
import uuid
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass

from aetheris.protocol.messages.commands import JobIndexEntry, ListedPause, OpenRequest

_PACKED = struct.Struct(">Bq32s")
_ENDS = ("completed", "failed", "cancelled")
_DIGEST_HEX = 64
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class JobLine:
    """What is known of a job, of whatever age."""

    birth: int
    request_hash: str
    status: str
    requests: tuple[OpenRequest, ...] = ()
    paused: ListedPause | None = None


class JobLines(MutableMapping[str, bytes]):
    """By job_id; what was put in as JSON comes out for `read_line`."""

    def __init__(self) -> None:
        self._rows = sqlite3.connect(":memory:", isolation_level=None)
        self._rows.execute("PRAGMA journal_mode = OFF")
        self._rows.execute("CREATE TABLE line (job PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")

    def __getitem__(self, job_id: str) -> bytes:
        found = self._rows.execute("SELECT value FROM line WHERE job = ?", (_name(job_id),)).fetchone()
        if found is None:
            raise KeyError(job_id)
        return found[0]

    def __setitem__(self, job_id: str, value: bytes) -> None:
        self._rows.execute("INSERT OR REPLACE INTO line VALUES (?, ?)", (_name(job_id), _packed(value)))

    def __delitem__(self, job_id: str) -> None:
        if not self._rows.execute("DELETE FROM line WHERE job = ?", (_name(job_id),)).rowcount:
            raise KeyError(job_id)

    def __iter__(self) -> Iterator[str]:
        for (name,) in self._rows.execute("SELECT job FROM line"):
            yield name if isinstance(name, str) else str(uuid.UUID(bytes=name))

    def __len__(self) -> int:
        return self._rows.execute("SELECT count(*) FROM line").fetchone()[0]


def read_line(value: bytes) -> JobLine:
    """A line as `JobLines` gives it.

    Raises:
        ValueError: what came from the log was no line.
    """
    if len(value) == _PACKED.size:
        end, creation, digest = _PACKED.unpack(value)
        return JobLine(creation, digest.hex(), _ENDS[end])
    entry = JobIndexEntry.model_validate_json(value)
    return JobLine(entry.birth, entry.request_hash, entry.status, entry.requests, entry.paused)


def _packed(value: bytes) -> bytes:
    """In short, where it says no more than that; what can't be read stays as it is, for whoever asks for it."""
    try:
        line = read_line(value)
        digest = bytes.fromhex(line.request_hash)
    except ValueError:
        return value
    if (
        line.status not in _ENDS
        or line.requests
        or len(line.request_hash) != _DIGEST_HEX
        or digest.hex() != line.request_hash
    ):
        return value
    return _PACKED.pack(_ENDS.index(line.status), line.birth, digest)


def _name(job_id: str) -> str | bytes:
    """16 bytes where it is a UUID as it is usually written, else as it is."""
    if _UUID.fullmatch(job_id):
        return bytes.fromhex(job_id.replace("-", ""))
    return job_id
