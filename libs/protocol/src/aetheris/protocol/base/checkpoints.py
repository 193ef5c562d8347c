"""Checkpoints: a live job's own records, cut out of the log in pieces (docs/adr/0007-checkpoints.md); pure.

A piece holds every record of its job in (after, as_of], byte for byte. Its name is its record's key; its value is the
root of the job's event chain before it (zeros before the birth), the root behind it, and its records, packed.
"""

import hashlib
import re
import struct
import zlib
from binascii import b2a_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter

from aetheris.protocol.base.records import Record

MAX_PIECE_BYTES = 256 * 1024
TYPE = b"io.aetheris.checkpoint.v1"
UNBORN = bytes(32)
"""Stands where the chain is empty: no hash is zero."""

_NAME = re.compile(r"(?P<job_id>[^:]+):(?P<birth>\d{1,18}):(?P<after>-1|\d{1,18}):(?P<as_of>\d{1,18})")
_EVENT_TYPE = re.compile(rb"io\.aetheris\.([a-z0-9_]+)\.v[0-9]+")
_BORN = b"io.aetheris.job_created.v"
_MOST_UNPACKED = 64 * 1024 * 1024
_RECORD = struct.Struct(">qqII")
_HEADER = struct.Struct(">II")


class BadPiece(ValueError):
    """A record of the topic that is no piece of a checkpoint, or not what it says it is."""


@dataclass(frozen=True, slots=True)
class CheckpointSpan:
    """What a piece covers of its job's records: those at the offsets in (after, as_of]."""

    job_id: str
    creation_offset: int
    after: int
    as_of: int

    @property
    def key(self) -> bytes:
        """The record key."""
        return f"{self.job_id}:{self.creation_offset}:{self.after}:{self.as_of}".encode()

    @classmethod
    def of(cls, key: bytes | None) -> "CheckpointSpan":
        """The span that a key names.

        Raises:
            BadPiece: none.
        """
        found = _NAME.fullmatch((key or b"").decode(errors="replace"))
        if found is None:
            raise BadPiece("its key names no span")
        span = cls(found["job_id"], int(found["birth"]), int(found["after"]), int(found["as_of"]))
        if not span.creation_offset - 1 <= span.after < span.as_of or span.creation_offset > span.as_of:
            raise BadPiece("its key names no span")
        return span

    @property
    def is_first(self) -> bool:
        """Whether it begins with the job's birth."""
        return self.after == self.creation_offset - 1


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a job's history, between two roots of its event chain."""

    span: CheckpointSpan
    before: bytes
    root: bytes
    records: tuple[Record, ...]


def cut(span: CheckpointSpan, before: bytes, records: Iterable[Record]) -> Piece:
    """The piece of these records, which are all that the log has of the job within `span`."""
    held = tuple(records)
    root = before
    for record in held:
        root = chained(root, record)
    return Piece(span, before, root, held)


def chained(root: bytes, record: Record) -> bytes:
    """The event chain's root behind a record (docs/verification.md)."""
    id_, type_ = record.identity()
    named = _EVENT_TYPE.fullmatch(type_ or b"")
    link = (
        b"" if root == UNBORN else root,
        id_ or b"",
        named[1] if named is not None else type_ or b"",
        b2a_base64(record.value, newline=False),
    )
    return hashlib.sha256(b"%b\n%b %b %b" % link).digest()


def write(piece: Piece) -> bytes:
    """A piece as the value of its record."""
    packed = b"".join(part for record in piece.records for part in _packed(record))
    return piece.before + piece.root + (zlib.compress(packed) if packed else b"")


def read(record: Record, topic: str) -> Piece:
    """The piece in a record, checked; its records are of `topic`, in the partition of their checkpoint.

    Raises:
        BadPiece: it can't be read, or is not what its key and its roots say.
    """
    span = CheckpointSpan.of(record.key)
    if record.identity()[1] != TYPE:
        raise BadPiece("of a type that this version can't read")
    before, root = record.value[:32], record.value[32:64]
    if len(root) < 32 or (before == UNBORN) != span.is_first:
        raise BadPiece("it names no roots")
    found = cut(span, before, _unpacked(record.value[64:], span, (topic, record.partition)))
    _check(found, root)
    return found


def _check(piece: Piece, root: bytes) -> None:
    offsets = [record.offset for record in piece.records]
    bounds = [piece.span.after, *offsets, piece.span.as_of + 1]
    if any(one >= following for one, following in pairwise(bounds)):
        raise BadPiece("its records lie out of order, or out of bounds")
    if piece.root != root:
        raise BadPiece("its records have another root")
    if piece.span.is_first and not begins_with_creation(piece):
        raise BadPiece("it does not begin with the job's birth")


def begins_with_creation(piece: Piece) -> bool:
    """Whether a first piece begins with the job's birth."""
    first = piece.records[0] if piece.records else None
    return (
        first is not None
        and first.offset == piece.span.creation_offset
        and (first.identity()[1] or b"").startswith(_BORN)
    )


_PLACE = attrgetter("after", "as_of")


@dataclass(slots=True)
class _Known:
    """A piece that was read and checked, less its records."""

    before: bytes
    root: bytes
    is_empty: bool


@dataclass(slots=True)
class Reached:
    """How far a job's history is known whole from checkpoints: the pieces on the way, and where they lead."""

    as_of: int
    root: bytes
    path: tuple[CheckpointSpan, ...]
    filled: int
    """Up to where there are records; behind it, it is known that there are none."""


@dataclass(slots=True)
class Chain:
    """The pieces of one job, in whatever order they came, by however many writers."""

    job_id: str
    creation_offset: int
    _pieces: dict[CheckpointSpan, _Known] = field(default_factory=dict[CheckpointSpan, _Known])
    _unreadable: set[CheckpointSpan] = field(default_factory=set[CheckpointSpan])
    _strange: set[CheckpointSpan] = field(default_factory=set[CheckpointSpan])

    @property
    def is_own(self) -> bool:
        """Whether there is a piece of who may write it, readable or not; else not even the birth in its key is sure."""
        return bool(self._pieces or self._unreadable)

    def put(self, piece: Piece) -> None:
        """A piece was read."""
        self.drop(piece.span)
        self._pieces[piece.span] = _Known(piece.before, piece.root, not piece.records)

    def distrust(self, span: CheckpointSpan) -> None:
        """A piece can't be read: it counts as none."""
        self.drop(span)
        self._unreadable.add(span)

    def disown(self, span: CheckpointSpan) -> None:
        """A piece is anybody's: it counts as none."""
        self.drop(span)
        self._strange.add(span)

    def drop(self, span: CheckpointSpan) -> None:
        """A piece was deleted."""
        self._pieces.pop(span, None)
        self._unreadable.discard(span)
        self._strange.discard(span)

    def spans(self) -> list[CheckpointSpan]:
        """The pieces that there are, whatever they are worth."""
        return [*self._pieces, *self._unreadable, *self._strange]

    def reached(self, end: int | None = None) -> Reached | None:
        """How far the pieces lead from the birth, below offset `end`; None: nowhere, or they contradict each other."""
        roots, ways = {self.creation_offset - 1: UNBORN}, dict[int, CheckpointSpan]()
        for span in sorted(self._pieces, key=_PLACE):
            before, known = roots.get(span.after), self._pieces[span]
            if before is None or (end is not None and span.as_of >= end):
                continue
            if before != known.before or roots.setdefault(span.as_of, known.root) != known.root:
                return None
            ways.setdefault(span.as_of, span)
        path = _path(ways, max(roots))
        filled = next((span.as_of for span in reversed(path) if not self._pieces[span].is_empty), None)
        return Reached(max(roots), roots[max(roots)], path, filled) if filled is not None else None

    def superseded(self) -> list[CheckpointSpan]:
        """Pieces without records from where another leads further."""
        furthest: dict[int, int] = {}
        for span in self._pieces:
            furthest[span.after] = max(span.as_of, furthest.get(span.after, 0))
        return [span for span, known in self._pieces.items() if known.is_empty and span.as_of < furthest[span.after]]


def _path(ways: Mapping[int, CheckpointSpan], at: int) -> tuple[CheckpointSpan, ...]:
    found: list[CheckpointSpan] = []
    while at in ways:
        found.append(ways[at])
        at = found[-1].after
    return tuple(reversed(found))


def _packed(record: Record) -> Iterator[bytes]:
    yield _RECORD.pack(record.offset, record.timestamp_ms, len(record.headers), len(record.value))
    for name, value in record.headers:
        raw = name.encode()
        yield _HEADER.pack(len(raw), len(value))
        yield raw
        yield value
    yield record.value


def _unpacked(packed: bytes, span: CheckpointSpan, place: tuple[str, int]) -> Sequence[Record]:
    """Raises: BadPiece."""
    if not packed:
        return ()
    try:
        unzip = zlib.decompressobj()
        data = unzip.decompress(packed, _MOST_UNPACKED)
        if unzip.unconsumed_tail or unzip.unused_data or not unzip.eof:
            raise BadPiece("its records can't be unpacked")
        return list(_records(data, span, place))
    except (zlib.error, struct.error, UnicodeDecodeError):
        raise BadPiece("its records can't be unpacked") from None


def _records(data: bytes, span: CheckpointSpan, place: tuple[str, int]) -> Iterator[Record]:
    at, end, key = 0, len(data), span.job_id.encode()
    while at < end:
        offset, timestamp_ms, headers, size = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        found: list[tuple[str, bytes]] = []
        for _ in range(headers):
            name, value = _HEADER.unpack_from(data, at)
            begins = at + _HEADER.size
            at = begins + name + value
            found.append((data[begins : begins + name].decode(), data[begins + name : at]))
        at += size
        if at > end:  # a slice beyond the end is only shorter
            raise BadPiece("its records can't be unpacked")
        yield Record(*place, offset, timestamp_ms, key, tuple(found), data[at - size : at])
