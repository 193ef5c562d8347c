"""One partition's checkpoints: what a mark may rest on, and what a restart loads (docs/adr/0007-checkpoints.md).

The law is docs/model/Mark.tla: a mark passes a live job's birth only up to where this very service has read, and
checked, all that the log says of it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from aetheris.protocol.base.checkpoints import BadPiece, Chain, CheckpointSpan, Piece, Reached, read
from aetheris.protocol.base.records import Draft, Record
from aetheris.runtime.log.interface import Log, Place
from aetheris.runtime.log.replay import replay

Live = Iterable[tuple[str, int]]
"""Live jobs, each with its birth."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PieceSignatures:
    """By what a service knows pieces to be its own."""

    counts: Callable[[Record], bool] = lambda _: True
    """Whether a piece, which may be anybody's, is to be looked at."""
    sign: Callable[[Draft], Draft] = lambda draft: draft


UNSIGNED_PIECES = PieceSignatures()
"""Where no root is known, all count."""


@dataclass(frozen=True)
class Loaded:
    """Where reading the authority starts, and what of live jobs lies below."""

    start: int
    histories: Iterator[Sequence[Record]]
    """The records of one job at a time, in the order of their births."""
    live: frozenset[tuple[str, int]] = frozenset()
    """Jobs that have pieces, each with its birth, of which nothing lies below `start`."""


class Checkpoints:
    """The pieces that lie in `place`, of the jobs of `authority`'s partition."""

    def __init__(
        self,
        log: Log,
        place: Place,
        authority: Place,
        read: Callable[[Record, str], Piece] = read,
        counts: Callable[[Record], bool] = UNSIGNED_PIECES.counts,
    ) -> None:
        """`read`: how a piece is read, and checked; `counts`: whether it is at all."""
        self.place = place
        self._counts = counts
        self._read = read
        self._log = log
        self._authority = authority
        self._chains: dict[tuple[str, int], Chain] = {}
        self._names: Counter[bytes] = Counter()
        self._reached: dict[tuple[str, int], Reached | None] = {}

    def __len__(self) -> int:
        return len(self._chains)

    async def load(self, begin: int, end: int, mark: int, log_end: int) -> Loaded:
        """Read all pieces, from offset `begin` to `end`; what is of use to who would start at `mark`.

        Nothing may be known beyond `log_end`. A job whose pieces don't lead from its birth is read from there.

        Raises:
            LogGap: the topic doesn't have `begin`.
        """
        values: dict[CheckpointSpan, Record] = {}
        async for records in replay(self._log, self.place, begin, end):
            self.take(records)
            values.update(_named(records))
            await asyncio.sleep(0)
        return self.loaded(values, mark, log_end)

    def loaded(self, values: Mapping[CheckpointSpan, Record], mark: int, log_end: int) -> Loaded:
        """As `load`, of the pieces that were taken; `values` are their records."""
        start, found = mark, dict[str, Reached]()
        for job_id, creation_offset in sorted(self._chains, key=lambda one: one[1]):
            if creation_offset >= min(mark, log_end) or job_id in found:
                continue
            reached = self._chains[job_id, creation_offset].reached(log_end)
            if reached is None:
                _log.warning(
                    "no whole checkpoint: the job is read from its birth", job_id=job_id, birth=creation_offset
                )
                start = min(start, creation_offset)
            else:
                start = min(start, reached.as_of + 1)
                found[job_id] = reached
        live = frozenset(place for place in self._chains if start <= place[1])
        return Loaded(start, self._histories(found.values(), values, start), live)

    def take(self, records: Iterable[Record]) -> None:
        """Pieces, and deletions of pieces, as they come in the topic; what can't be used counts as none."""
        for span, record in _named(records):
            place = (span.job_id, span.creation_offset)
            chain = self._chains.get(place) or self._begin(place)
            self._reached.pop(place, None)
            if not record.value:
                chain.drop(span)
            else:
                self._check(chain, span, record)
            if not chain.spans():
                del self._chains[place]
                self._names[span.job_id.encode()] -= 1

    def mark(self, live: Live) -> int | None:
        """The lowest offset of the authority that is still needed for these jobs; None if nothing is."""
        return min((self._needed(job_id, creation_offset) for job_id, creation_offset in live), default=None)

    def reached(self, job_id: str, creation_offset: int) -> Reached | None:
        """How far a job's history is known from its pieces."""
        place = (job_id, creation_offset)
        if place not in self._chains:
            return None
        if place not in self._reached:
            self._reached[place] = self._chains[place].reached()
        return self._reached[place]

    def has(self, key: bytes) -> bool:
        """Whether there are pieces of the job with this record key."""
        return self._names[key] > 0

    def chain(self, job_id: str, creation_offset: int) -> Chain | None:
        """A job's pieces."""
        return self._chains.get((job_id, creation_offset))

    def chains(self) -> list[Chain]:
        """All that there are."""
        return list(self._chains.values())

    def _begin(self, place: tuple[str, int]) -> Chain:
        self._names[place[0].encode()] += 1
        return self._chains.setdefault(place, Chain(*place))

    def _needed(self, job_id: str, creation_offset: int) -> int:
        reached = self.reached(job_id, creation_offset) if self._chains else None
        return creation_offset if reached is None else reached.as_of + 1

    def _check(self, chain: Chain, span: CheckpointSpan, record: Record) -> None:
        if not self._counts(record):
            chain.distrust(span)
            return
        try:
            chain.put(self._read(record, self._authority[0]))
        except BadPiece as error:
            _log.warning("a checkpoint can't be used", job_id=span.job_id, offset=record.offset, reason=str(error))
            chain.distrust(span)

    def _histories(
        self, found: Iterable[Reached], values: Mapping[CheckpointSpan, Record], start: int
    ) -> Iterator[Sequence[Record]]:
        for reached in found:
            pieces = (self._read(values[span], self._authority[0]) for span in reached.path if span.after < start - 1)
            yield [one for piece in pieces for one in piece.records if one.offset < start]


def _named(records: Iterable[Record]) -> Iterator[tuple[CheckpointSpan, Record]]:
    """Those whose key names a span."""
    for record in records:
        try:
            span = CheckpointSpan.of(record.key)
        except BadPiece:
            continue
        yield span, record
