"""The lines of jobs.index in memory: whole for jobs that live, in some 40 bytes for those that have ended.

Of an ended job a service must know for ever what it was asked for (a repeat of its submission is no new job) and where
its records lie; who submitted it, and when, its first record says (docs/architecture.md, "The index of jobs").
"""

import re
import sqlite3
import uuid
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace

from aetheris.protocol.base.ids import NAME
from aetheris.protocol.base.stretches import Stretch, in_order
from aetheris.protocol.messages.commands import JobBehind, JobIndexEntry, ListedFreeze, ListedPause, OpenRequest
from aetheris.runtime.base.varint import varint
from aetheris.runtime.log.partitioning import partition_of

ENDS = ("completed", "failed", "cancelled")
"""The statuses that a job ends with."""
_PACKED = 0xF8
"""And the end's place in `ENDS`: the first byte of what is packed. No text begins with it."""
_PLACED = _PACKED + len(ENDS)
"""The same of a job that lies in another partition than its id names, which follows then as the first number."""
_DIGEST = slice(1, 33)
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
    stretches: tuple[Stretch, ...] = ()
    """Where its records lie, up to its seal; none while that is not told."""
    behind: tuple[Stretch, ...] = ()
    """And behind its seal."""
    frozen: ListedFreeze | None = None
    partition: int | None = None
    """Where it lies, if in another one than its id names."""

    def lies_in(self, job_id: str, first: int) -> int:
        """The job's partition; `first`: how many the installation began with, which jobs.index still has."""
        return partition_of(job_id, first) if self.partition is None else self.partition


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
        self.keep(job_id, _packed(value))

    def keep(self, job_id: str, packed: bytes) -> None:
        """Put in what comes out as it is."""
        self._rows.execute("INSERT OR REPLACE INTO line VALUES (?, ?)", (_name(job_id), packed))

    def __delitem__(self, job_id: str) -> None:
        if not self._rows.execute("DELETE FROM line WHERE job = ?", (_name(job_id),)).rowcount:
            raise KeyError(job_id)

    def __iter__(self) -> Iterator[str]:
        for (name,) in self._rows.execute("SELECT job FROM line"):
            yield name if isinstance(name, str) else str(uuid.UUID(bytes=name))

    def __len__(self) -> int:
        return self._rows.execute("SELECT count(*) FROM line").fetchone()[0]


Rows = Callable[[str], bytes | None]
"""The values of jobs.index, by key."""


def line_of(rows: Rows, job_id: str) -> JobLine | None:
    """What the index says of a job; None for one that it doesn't know.

    Raises:
        ValueError: what came from the log was no line.
    """
    value = rows(job_id) if NAME.fullmatch(job_id) else None
    if value is None:
        return None
    line = read_line(value)
    return replace(line, behind=behind_of(rows, job_id)) if line.stretches else line


def behind_of(rows: Rows, job_id: str) -> tuple[Stretch, ...]:
    """Where records of a sealed job lie behind its seal.

    Raises:
        ValueError: what came from the log was no line.
    """
    value = rows(JobBehind.key_of(job_id))
    return JobBehind.model_validate_json(value).stretches if value is not None else ()


def read_line(value: bytes) -> JobLine:
    """A job's own line as `JobLines` gives it.

    Raises:
        ValueError: what came from the log was no line.
    """
    if value and 0 <= value[0] - _PACKED < 2 * len(ENDS):
        return _unpacked(value)
    entry = JobIndexEntry.model_validate_json(value)
    return JobLine(
        entry.birth,
        entry.request_hash,
        entry.status,
        entry.requests,
        entry.paused,
        _lawful(entry.birth, entry.stretches),
        frozen=entry.frozen,
        partition=entry.partition,
    )


def _lawful(creation_offset: int, stretches: tuple[Stretch, ...]) -> tuple[Stretch, ...]:
    """Stretches that begin with the birth and come one behind another; others say nothing."""
    reported = (
        bool(stretches)
        and stretches[0][0] == creation_offset
        and in_order(creation_offset, stretches[-1][1], stretches)
    )
    return stretches if reported else ()


def _packed(value: bytes) -> bytes:
    """In short, where it says no more than that; what can't be read stays as it is, for whoever asks for it."""
    try:
        line = read_line(value)
        digest = bytes.fromhex(line.request_hash)
    except ValueError:
        return value
    if (
        line.status not in ENDS
        or line.requests
        or len(line.request_hash) != _DIGEST_HEX
        or digest.hex() != line.request_hash
        or line.birth < 0
    ):
        return value
    kind, numbers, at = _PACKED, [line.birth], line.birth
    if line.partition is not None:
        kind, numbers = _PLACED, [line.partition, line.birth]
    for begin, end in line.stretches:
        numbers += begin - at, end - begin
        at = end
    return bytes((kind + ENDS.index(line.status),)) + digest + b"".join(map(varint, numbers))


def _unpacked(value: bytes) -> JobLine:
    numbers = _numbers(value[_DIGEST.stop :])
    is_placed = value[0] >= _PLACED
    partition = numbers[0] if is_placed else None
    creation_offset, *lengths = numbers[is_placed:]
    stretches: list[Stretch] = []
    at = creation_offset
    for gap, length in zip(lengths[::2], lengths[1::2], strict=True):
        stretches.append((at + gap, at + gap + length))
        at += gap + length
    status = ENDS[(value[0] - _PACKED) % len(ENDS)]
    return JobLine(creation_offset, value[_DIGEST].hex(), status, stretches=tuple(stretches), partition=partition)


def _numbers(packed: bytes) -> Sequence[int]:
    found: list[int] = []
    number = shift = 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(number)
            number = shift = 0
    if shift or not found:
        raise ValueError("no line of jobs.index")
    return found


def _name(job_id: str) -> str | bytes:
    """16 bytes where it is a UUID as it is usually written, else as it is."""
    if _UUID.fullmatch(job_id):
        return bytes.fromhex(job_id.replace("-", ""))
    return job_id
