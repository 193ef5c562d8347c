"""One partition's checkpoints: what a mark may rest on, and what a restart loads (docs/adr/0007-checkpoints.md).

The law is docs/model/Mark.tla: a mark passes a live job's birth only up to where this very service has read, and
checked, all that the log says of it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from aetheris.protocol.base import sealed
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
    """Jobs that have pieces of the service's own, each with its birth, of which nothing lies below `start`."""


class Checkpoints:
    """The pieces that lie in `place`, of the jobs of `authority`'s partition."""

    def __init__(
        self,
        log: Log,
        place: Place,
        authority: Place,
        read: Callable[[Record, str], Piece] = read,
        counts: Callable[[Record], bool] = UNSIGNED_PIECES.counts,
        *,
        reach: int = 0,
    ) -> None:
        """`read`: how a piece is read, and checked; `counts`: whether it is at all; `reach`: of births (`sealed`)."""
        self.place = place
        self._counts = counts
        self._reach = reach
        self._read = read
        self._log = log
        self._authority = authority
        self._chains: dict[tuple[str, int], Chain] = {}
        self._names: Counter[bytes] = Counter()
        self._reached: dict[tuple[str, int], Reached | None] = {}

    def __len__(self) -> int:
        return len(self._chains)

    async def load(self, begin: int, end: int, mark: int, log: tuple[int, int]) -> Loaded:
        """Read all pieces, from offset `begin` to `end`; what is of use to who would start at `mark`.

        `log`: the authority's first offset, and where it ends; nothing may be known beyond. A job whose pieces don't
        lead from its birth is read from there. Where none of them is the service's own, what its key says is anybody's
        word: then as much is read as shows whether that birth is a copy, and a birth that is gone is passed over.

        Raises:
            LogGap: the topic doesn't have `begin`.
        """
        values: dict[CheckpointSpan, Record] = {}
        async for records in replay(self._log, self.place, begin, end):
            for span, record in _named(records):
                if self._take(span, record):
                    values[span] = record
                else:
                    values.pop(span, None)
            await asyncio.sleep(0)
        return self.loaded(values, mark, log)

    def loaded(self, values: Mapping[CheckpointSpan, Record], mark: int, log: tuple[int, int]) -> Loaded:
        """As `load`, of the pieces that were taken; `values` are their records."""
        start, found = self._start_of_strange(mark, log), dict[str, Reached]()
        for (job_id, creation_offset), chain in sorted(self._chains.items(), key=lambda one: one[0][1]):
            if not chain.is_own or creation_offset >= min(mark, log[1]) or job_id in found:
                continue
            reached = chain.reached(log[1])
            if reached is None:
                _log.warning(
                    "no whole checkpoint: the job is read from its birth", job_id=job_id, birth=creation_offset
                )
                start = min(start, creation_offset)
            else:
                start = min(start, reached.as_of + 1)
                found[job_id] = reached
        live = frozenset(place for place, chain in self._chains.items() if chain.is_own and start <= place[1])
        return Loaded(start, self._histories(found.values(), values, start), live)

    def take(self, records: Iterable[Record]) -> None:
        """Pieces, and deletions of pieces, as they come in the topic; what can't be used counts as none."""
        for span, record in _named(records):
            self._take(span, record)

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

    def _start_of_strange(self, mark: int, log: tuple[int, int]) -> int:
        """From where jobs are read that have only strangers' pieces; those whose births are gone are forgotten.

        Their pieces stay in the topic: they count again for who is told another root.
        """
        start = mark
        strange = [place for place, chain in self._chains.items() if not chain.is_own and place[1] < log[1]]
        for job_id, creation_offset in strange:
            if creation_offset < log[0]:
                _log.error("no checkpoint counts, and the birth is gone", job_id=job_id, birth=creation_offset)
                self._end((job_id, creation_offset))
            else:
                start = min(start, max(sealed.in_reach(creation_offset, self._reach), log[0]))
        return start

    def _begin(self, place: tuple[str, int]) -> Chain:
        self._names[place[0].encode()] += 1
        return self._chains.setdefault(place, Chain(*place))

    def _end(self, place: tuple[str, int]) -> None:
        del self._chains[place]
        self._names[place[0].encode()] -= 1

    def _needed(self, job_id: str, creation_offset: int) -> int:
        reached = self.reached(job_id, creation_offset) if self._chains else None
        return creation_offset if reached is None else reached.as_of + 1

    def _take(self, span: CheckpointSpan, record: Record) -> bool:
        """Whether it is a piece that can be used."""
        place = (span.job_id, span.creation_offset)
        chain = self._chains.get(place) or self._begin(place)
        self._reached.pop(place, None)
        is_put = False
        if record.value:
            is_put = self._check(chain, span, record)
        else:
            chain.drop(span)
        if not chain.spans():
            self._end(place)
        return is_put

    def _check(self, chain: Chain, span: CheckpointSpan, record: Record) -> bool:
        if not self._counts(record):
            chain.disown(span)
            return False
        try:
            chain.put(self._read(record, self._authority[0]))
        except BadPiece as error:
            _log.warning("a checkpoint can't be used", job_id=span.job_id, offset=record.offset, reason=str(error))
            chain.distrust(span)
            return False
        return True

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
