"""Checkpoints, simulated: the same pieces, written by any planner and any ledger, which lie in their topic at once."""

from collections.abc import Callable, Collection, Iterator, Sequence

from aetheris.protocol.base.checkpoints import TYPE, UNBORN, CheckpointSpan, Piece, cut, read, write
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.events import JobCreated
from aetheris.runtime.worker.checkpoints import Checkpoints, Live
from aetheris.testkit.memory import MemoryLog
from aetheris.testkit.simulation.log import Entry
from aetheris.testkit.simulation.surroundings import SimulationSurroundings

AUTHORITY = (str(Topic.JOBS_EVENTS), 0)
ROUNDS = 3
"""Of who writes them, after which it does."""

Evolve = Callable[[Entry], object]


class SimCheckpoints:
    """What one process knows of them."""

    def __init__(self, around: SimulationSurroundings, topic: Topic) -> None:
        self._around = around
        self._place = (str(topic), 0)
        self._pieces = around.pieces[topic]
        self._known = Checkpoints(MemoryLog(1), self._place, AUTHORITY, self._read)
        self._taken = 0
        self._rounds = 0

    live: Collection[tuple[str, int]] = ()
    """What was loaded last says where these were created, of which nothing lies below."""

    def load(self, mark: int) -> tuple[int, Sequence[Entry]]:
        """Where a restart reads on, and what of live jobs lies below: of nothing else it is told."""
        self.take()
        values = {CheckpointSpan.of(record.key): record for record in self._pieces}
        events = self._around.log.topics[Topic.JOBS_EVENTS]
        loaded = self._known.loaded(values, mark, (0, len(events)))
        self.live = loaded.live
        return loaded.start, [events[record.offset] for history in loaded.histories for record in history]

    def take(self) -> None:
        """Read what has come."""
        self._known.take(self._pieces[self._taken :])
        self._taken = len(self._pieces)

    def mark(self, live: Live, position: int) -> int:
        """What this process may commit."""
        low = self._known.mark(live)
        return position if low is None else min(low, position)

    def write(self, live: Live, position: int) -> None:
        """Every third round: what is new of each job below `position`; what is of no use any more is deleted."""
        self._rounds += 1
        if self._rounds % ROUNDS:
            return
        events = self._around.log.topics[Topic.JOBS_EVENTS]
        jobs = {job_id: at for job_id, at in live if isinstance(events[at].body, JobCreated)}
        for job_id, creation_offset in jobs.items():
            self._pieces.extend(self._piece(job_id, creation_offset, position - 1))
        self.take()
        gone: list[CheckpointSpan] = []
        for chain in self._known.chains():
            is_live = jobs.get(chain.job_id) == chain.creation_offset or chain.creation_offset >= position
            gone += chain.superseded() if is_live else chain.spans()
        self._pieces.extend(Record(*self._place, 0, 0, span.key, (), b"") for span in gone)

    def _read(self, record: Record, topic: str) -> Piece:
        subject = (record.key, record.value)
        known = self._around.read_pieces.get(subject)
        if known is None:
            known = self._around.read_pieces[subject] = read(record, topic)
        return known

    def _piece(self, job_id: str, creation_offset: int, as_of: int) -> Iterator[Record]:
        reached = self._known.reached(job_id, creation_offset)
        if reached is not None and reached.as_of >= as_of:
            return
        after, root = (creation_offset - 1, UNBORN) if reached is None else (reached.filled, reached.root)
        log = self._around.log
        held = log.topics[Topic.JOBS_EVENTS][after + 1 : as_of + 1]
        records = [log.written(one) for one in held if one.body.job_id == job_id]
        piece = cut(CheckpointSpan(job_id, creation_offset, after, as_of), root, records)
        yield Record(*self._place, 0, 0, piece.span.key, (("ce_type", TYPE),), write(piece))
