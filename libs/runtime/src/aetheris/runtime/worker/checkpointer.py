"""Writing checkpoints: of jobs that the log has left behind, so that short ones pay nothing (docs/adr/0007)."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from aetheris.protocol.base.checkpoints import (
    MAX_PIECE_BYTES,
    TYPE,
    UNBORN,
    CheckpointSpan,
    Piece,
    begins_with_creation,
    cut,
    write,
)
from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.interface import Appender, Log, Place
from aetheris.runtime.log.replay import replay
from aetheris.runtime.process.withheld import write_all
from aetheris.runtime.worker.checkpoints import UNSIGNED_PIECES, Checkpoints, Live

EVERY = 20_000
"""Records of a partition, after which a job that was there before them gets a checkpoint."""

Report = Callable[[str, str, int], Group]
"""job_id, root in hex, as_of → what the log is to say of a checkpoint; empty for nothing."""

_PER_JOB = 8
"""Records for each job under checkpoint: what is written stays a small part of what was."""
_GATHERED_BYTES = 1024 * 1024
"""Of a job's records, before they are packed."""
_PAUSE_S = 0.01
_SEALED = b"io.aetheris.job_sealed.v1"
_CHECKPOINTED = b"io.aetheris.state_checkpointed.v1"

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Cut:
    """A job's next piece, as far as it is gathered: the records behind `after`, where the chain has `root`."""

    job_id: str
    creation_offset: int
    after: int
    root: bytes
    searched: int
    """Up to where it is known that there are no more."""
    records: list[Record] = field(default_factory=list[Record])
    size: int = 0
    says_something: bool = False
    """Whether there is a record that isn't about checkpoints."""
    replaces: tuple[CheckpointSpan, ...] = ()
    """Pieces that lead nowhere, or contradict each other."""
    written: set[CheckpointSpan] = field(default_factory=set[CheckpointSpan])

    def add(self, record: Record) -> None:
        self.records.append(record)
        self.size += len(record.value)
        self.says_something |= record.header("ce_type") != _CHECKPOINTED

    def up_to(self, as_of: int) -> Piece:
        """What was gathered, as a piece; the next one goes on behind it."""
        piece = cut(CheckpointSpan(self.job_id, self.creation_offset, self.after, as_of), self.root, self.records)
        self.after, self.root, self.records, self.size = as_of, piece.root, [], 0
        return piece


class Checkpointer:
    """Reads the partition again, in the background, for the jobs that are due; deletes what is of no use any more."""

    def __init__(
        self,
        log: Log,
        appender: Appender,
        clock: Clock,
        checkpoints: Checkpoints,
        *,
        authority: Place,
        every: int,
        report: Report,
        sign: Callable[[Draft], Draft] = UNSIGNED_PIECES.sign,
    ) -> None:
        self._log = log
        self._appender = appender
        self._clock = clock
        self._checkpoints = checkpoints
        self._authority = authority
        self._every = every
        self._report = report
        self._sign = sign
        self._since = 0
        self._noted_from = 0
        self._last: dict[bytes, int] = {}
        self._ended = False
        self._refused: set[str] = set()
        self._writing: asyncio.Task[None] | None = None

    def start(self, position: int) -> None:
        """The partition is read from there on."""
        self._since = self._noted_from = position

    def note(self, records: Iterable[Record]) -> None:
        """What the partition says, in log order, without a gap."""
        last, held = self._last, self._checkpoints
        for record in records:
            key = record.key or b""
            last[key] = record.offset
            if len(held) and held.has(key) and record.header("ce_type") == _SEALED:
                self._ended = True

    def look(self, position: int, live: Callable[[], Live]) -> None:
        """Begin to write, where it is time to; raises what the last time ended with."""
        if self._writing is not None:
            if not self._writing.done():
                return
            done, self._writing = self._writing, None
            done.result()
        grown = position - self._since >= max(self._every, _PER_JOB * len(self._checkpoints))
        if not (grown or self._ended):
            return
        jobs = dict(live())
        work = self._due(jobs, position) if grown else []
        self._writing = asyncio.create_task(self._write(work, position, jobs))

    async def close(self) -> None:
        """Write no more."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    def _due(self, jobs: Mapping[str, int], position: int) -> list[_Cut]:
        """The jobs that were there before the last stretch, each with where its next piece begins."""
        self._since = position
        self._last = {key: at for key, at in self._last.items() if key.decode(errors="replace") in jobs}
        found = (
            self._next(job_id, creation_offset, position)
            for job_id, creation_offset in jobs.items()
            if job_id not in self._refused
        )
        return [one for one in found if one is not None]

    def _next(self, job_id: str, creation_offset: int, position: int) -> _Cut | None:
        reached = self._checkpoints.reached(job_id, creation_offset)
        if reached is None:
            if creation_offset >= position - self._every:
                return None
            broken = self._checkpoints.chain(job_id, creation_offset)
            replaces = tuple(broken.spans()) if broken is not None else ()
            return _Cut(job_id, creation_offset, creation_offset - 1, UNBORN, creation_offset - 1, replaces=replaces)
        if reached.as_of >= position - 1:
            return None
        is_idle = reached.as_of + 1 >= self._noted_from and self._last.get(job_id.encode(), -1) <= reached.as_of
        searched = position - 1 if is_idle else reached.as_of
        return _Cut(job_id, creation_offset, reached.filled, reached.root, searched)

    async def _write(self, work: Sequence[_Cut], position: int, jobs: Mapping[str, int]) -> None:
        await self._gather({one.job_id.encode(): one for one in work}, position)
        for one in work:
            if one.job_id not in self._refused:
                await self._finish(one, position - 1)
        await self._delete(work, position, jobs)

    async def _gather(self, work: Mapping[bytes, _Cut], position: int) -> None:
        """One reading for all of them; who has much is written meanwhile."""
        start = min((one.searched + 1 for one in work.values()), default=position)
        async for records in replay(self._log, self._authority, start, position):
            for record in records:
                one = work.get(record.key or b"")
                if one is None or not one.searched < record.offset < position:
                    continue
                if one.size + len(record.value) > _GATHERED_BYTES and one.records:
                    await self._append(one, one.records[-1].offset)
                one.add(record)
            await self._clock.sleep(_PAUSE_S)

    async def _finish(self, one: _Cut, as_of: int) -> None:
        says_something = one.says_something
        root = await self._append(one, as_of)
        reported = self._report(one.job_id, root.hex(), as_of) if root is not None and says_something else ()
        if reported:
            await write_all(self._appender, [reported])

    async def _append(self, one: _Cut, as_of: int) -> bytes | None:
        """Write what was gathered, in as many pieces as it takes; the root behind it."""
        if one.job_id in self._refused:
            one.up_to(as_of)
            return None
        piece = one.up_to(as_of)
        if piece.span.is_first and not begins_with_creation(piece):
            return self._refuse(one, "its birth can't be read")
        drafts = await asyncio.to_thread(drafts_of, piece, self._checkpoints.place)
        refusals = await write_all(self._appender, [(self._sign(draft),) for draft in drafts])
        if refusals:
            return self._refuse(one, refusals[0].why)
        one.written.update(CheckpointSpan.of(draft.key) for draft in drafts)
        return piece.root

    def _refuse(self, one: _Cut, reason: str) -> None:
        """Its mark stays where it is, and nothing is tried again: what is written is true all the same."""
        _log.warning("a job can't have a checkpoint", job_id=one.job_id, reason=reason)
        self._refused.add(one.job_id)

    async def _delete(self, work: Sequence[_Cut], position: int, jobs: Mapping[str, int]) -> None:
        """Pieces of sealed jobs, and those that others, which lie in the topic by now, took the place of."""
        self._ended = False
        gone = [span for one in work if one.job_id not in self._refused for span in {*one.replaces} - one.written]
        for chain in self._checkpoints.chains():
            is_live = jobs.get(chain.job_id) == chain.creation_offset or chain.creation_offset >= position
            gone += chain.superseded() if is_live else chain.spans()
        topic, number = self._checkpoints.place
        await write_all(self._appender, [(Draft(topic, span.key, b"", (), number),) for span in gone])


def drafts_of(piece: Piece, place: Place) -> list[Draft]:
    """A piece as records of at most 256 KiB, unless one of its own is larger."""
    value = write(piece)
    if len(value) > MAX_PIECE_BYTES and len(piece.records) > 1:
        half = len(piece.records) // 2
        middle = piece.records[half - 1].offset
        span = piece.span
        first = cut(
            CheckpointSpan(span.job_id, span.creation_offset, span.after, middle), piece.before, piece.records[:half]
        )
        second = cut(
            CheckpointSpan(span.job_id, span.creation_offset, middle, span.as_of), first.root, piece.records[half:]
        )
        return [*drafts_of(first, place), *drafts_of(second, place)]
    headers = (
        ("ce_specversion", b"1.0"),
        ("ce_id", piece.span.key),
        ("ce_source", b"aetheris/checkpoints"),
        ("ce_type", TYPE),
        ("ce_subject", piece.span.job_id.encode()),
        ("content-type", b"application/octet-stream"),
    )
    return [Draft(place[0], piece.span.key, value, headers, place[1])]
