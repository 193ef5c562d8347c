"""One partition of a service: restored from the log, then fed in micro-batches, one at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import structlog

from aetheris.protocol.base import sealed
from aetheris.protocol.base.ids import derived
from aetheris.protocol.base.job_table import NONE_AT_REST
from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.topics import dead_letters
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.interface import (
    GAP_BELIEVED_S,
    Appender,
    Log,
    LogGap,
    LogUnreachable,
    Membership,
    Place,
    RefusedGroup,
)
from aetheris.runtime.log.replay import replay
from aetheris.runtime.process.withheld import write_all
from aetheris.runtime.worker import reached
from aetheris.runtime.worker.ages import Ages
from aetheris.runtime.worker.checkpointer import Checkpointer
from aetheris.runtime.worker.checkpoints import UNSIGNED_PIECES, Checkpoints, Loaded, PieceSignatures
from aetheris.runtime.worker.handler import Inputs, PartitionHandler
from aetheris.runtime.worker.reached import LastRead

_log = structlog.get_logger(__name__)
_Answer = TypeVar("_Answer")

_RETRY_PAUSE_S = 0.2
_LETTER_HEADERS = ("dlq_id", "dlq_reason", "dlq_topic", "dlq_partition", "dlq_offset", "ce_id", "ce_type")
_TIMER_RESOLUTION_S = 0.001
_OFFERED_AGAIN_S = 10.0
"""After which it is looked at once more where nothing has happened: what was held for a day is held no more."""
_RESTED_EVERY_S, _RESTED_EVERY = 0.9, 1000
"""After which jobs may rest; and records of history, of which that is true as well."""
_PORTION = 400
"""Records of one turn, also of history: twenty milliseconds, after which others of the process have theirs."""


@dataclass(frozen=True)
class PartitionDependencies:
    """What every partition of a worker shares."""

    log: Log
    appender: Appender
    membership: Membership
    inputs: Inputs
    clock: Clock
    offer_interval_s: float
    queue_limit: int
    acknowledged: Callable[[Place], int]
    """The offset behind all that this process has appended there."""
    feed: Callable[[Mapping[Place, int]], None]
    """Deliver these places from these offsets."""
    hold: Callable[[Sequence[Place]], None]
    release: Callable[[Sequence[Place]], None]
    pieces: PieceSignatures = UNSIGNED_PIECES


class WorkerPartition:
    """A handler, its queue, and how far it has come."""

    def __init__(self, number: int, handler: PartitionHandler, around: PartitionDependencies) -> None:
        self.number = number
        self.restored = False
        self.offers: dict[Place, int] = {}
        """What may be committed: all that lies below was handled, and is needed no more."""
        self.notes: dict[Place, str] = {}
        """What is committed beside it: how far the authority was handled."""
        self.resting = NONE_AT_REST
        """Of its jobs, as of the last look."""
        self._rested_at = float("-inf")
        self._unrested = 0
        """Records of history that were folded since jobs could rest last."""
        self._handler = handler
        self._around = around
        self._places = {str(topic): (str(topic), number) for topic in around.inputs.topics}
        self._queues: dict[str, list[Record]] = {}
        self._queued = 0
        self._held = False
        self._busy = True
        self._closing = False
        self._stirred = asyncio.Event()
        self._covered: dict[Place, int] = {}
        self._offered_at = 0.0
        self._turned = True
        """Whether something has happened since it was offered what is reached: where many jobs rest, that is dear."""
        self._due: float | None = None
        self._timer: asyncio.Task[None] | None = None
        self._undecodable: list[Group] = []
        self._ages = {str(topic): Ages() for topic in around.inputs.made_again}
        self._authority = self._places[around.inputs.authority]
        self._last: Record | None = None
        """The last record of the authority that was handled."""
        self._since = 0
        """Where reading the authority began: nothing is known of what lies below."""
        self._lost = 0
        """Where the log was believed to end although this process had more acknowledged there."""
        self._checkpoints = self._checkpoints_of(around)
        self._checkpointer = self._checkpointer_of(around)

    @property
    def places(self) -> list[Place]:
        """What this partition reads."""
        return list(self._places.values())

    async def run(self) -> None:
        """Restore, then feed, until `close`.

        Raises:
            Exception: what escaped the handler, LogGap, or LogCut.
        """
        try:
            await self._restore()
            while not self._closing:
                await self._stirred.wait()
                self._stirred.clear()
                await self._turn()
                await asyncio.sleep(0)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def close(self) -> None:
        """Finish the micro-batch under way (`run` then returns); call `drain` after it has."""
        self._closing = True
        self._stirred.set()

    async def drain(self) -> None:
        """Let the handler finish, and offer what it has reached."""
        if self._checkpointer is not None:
            await self._checkpointer.close()
        await self._handler.close()
        await self._flush_undecodable()
        if self.restored:
            self._offer()

    def take(self, place: Place, records: list[Record]) -> None:
        """Queue what arrived; past the limit, nothing more is fetched until it is handled."""
        self._note_age(records[-1])
        self._queues.setdefault(place[0], []).extend(records)
        self._queued += len(records)
        if self._queued > self._around.queue_limit and not self._held:
            self._held = True
            self._around.hold(self.places)
        self._stirred.set()

    def call_at(self, due_s: float) -> None:
        """Tick at that time of the clock; the earliest call wins."""
        if self._due is not None and self._due <= due_s:
            return
        self._due = due_s
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.create_task(self._wake_up_at(due_s))

    def quarantine(self, record: Record, reason: str) -> bool:
        """Keep an undecodable record for the DLQ: appended before anything that lies behind it is committed.

        False where another service does that.
        """
        _log.warning("undecodable", topic=record.topic, partition=record.partition, offset=record.offset, reason=reason)
        if record.topic not in self._around.inputs.quarantines:
            return False
        self._undecodable.append((_dead_letter(record, reason),))
        return True

    def refresh_offers(self) -> None:
        """Offer what is reached, unless a micro-batch is under way (it offers by itself); time for jobs to rest."""
        if self._busy:
            return
        if self._turned or self._around.clock.monotonic() - self._offered_at >= _OFFERED_AGAIN_S:
            self._turned = False
            self._offer()
        self._rest()

    async def _restore(self) -> None:
        began_s = self._around.clock.monotonic()
        ends, positions, loaded = await self._bounds()
        await self._learn()  # of what lies below the mark
        known = await self._fold_loaded(loaded)
        positions[self._authority] = await self._fold(positions[self._authority], ends[self._authority])
        while (own := self.own_end) > positions[self._authority] and not self._closing:
            await self._learn()
            positions[self._authority] = await self._fold(positions[self._authority], own)
        if self._closing:
            return
        read = positions[self._authority] - loaded.start
        took_s = round(self._around.clock.monotonic() - began_s, 3)
        _log.info("restored", partition=self.number, start=loaded.start, read=read, known=known, took_s=took_s)
        await self._learn()
        if self._closing:
            return
        await self._handler.restored()
        await self._flush_undecodable()
        if self._closing:
            return  # revoked meanwhile: whoever has it next must not be fed from here
        self._covered[self._authority] = positions[self._authority]
        if self._checkpoints is not None:
            self._covered[self._checkpoints.place] = positions[self._checkpoints.place]
        self.restored, self._busy = True, False
        self._around.feed(positions)

    async def _bounds(self) -> tuple[dict[Place, int], dict[Place, int], Loaded]:
        """Where each place ends, where reading it starts, and what is known below; a gap is looked at again first.

        Once `restored` is called, all of the authority is folded that this process had acknowledged: a leader that was
        deposed while it slept tells an end of long ago when it wakes.
        """
        clock = asyncio.get_running_loop().time
        until_s = clock() + GAP_BELIEVED_S
        noted = await self._insist(lambda: self._around.membership.noted([self._authority]))
        before = reached.noted(noted[self._authority])
        while True:
            ends = await self._insist(lambda: self._around.log.end_offsets(self.places))
            is_believed = clock() >= until_s
            if before is not None and ends[self._authority] <= before.offset:
                if is_believed:
                    raise reached.cut(*self._authority, reached.ends_below(ends[self._authority], before))
                await asyncio.sleep(_RETRY_PAUSE_S)
                continue
            if ends[self._authority] < (own := self.own_end):
                _log.warning("the log ends below what it took", partition=self.number, own=own, believed=is_believed)
                if not is_believed:
                    await asyncio.sleep(_RETRY_PAUSE_S)
                    continue
                self._lost = own
            try:
                bounds = await self._starts(ends, is_believed=is_believed)
                if before is not None:
                    await self._hold_against(before)
                return ends, *bounds
            except LogGap as gap:
                if is_believed:
                    raise
                _log.warning("a gap is looked at again", partition=self.number, error=str(gap))
                await asyncio.sleep(1.0)

    async def _hold_against(self, before: LastRead) -> None:
        """Whether the last record that was handled is there still; one that was deleted since can't say.

        Raises:
            LogCut: another one is there.
        """
        begins = await self._insist(lambda: self._around.log.beginning_offsets([self._authority]))
        if begins[self._authority] <= before.offset:
            async for records in replay(self._around.log, self._authority, before.offset, before.offset + 1):
                if records[0].offset == before.offset and LastRead.at(records[0]) != before:
                    raise reached.cut(*self._authority, reached.is_another(before))
        self.notes[self._authority] = before.note()
        self._handler.handled_before(before.offset)

    async def _starts(self, ends: Mapping[Place, int], *, is_believed: bool) -> tuple[dict[Place, int], Loaded]:
        """Where reading starts: at what was committed, else at the beginning; never past a gap."""
        committed = await self._insist(lambda: self._around.membership.committed(self.places))
        begins = await self._insist(lambda: self._around.log.beginning_offsets(self.places))
        starts = {place: begins[place] if at is None else at for place, at in committed.items()}
        loaded = Loaded(starts[self._authority], iter(()))
        if self._checkpoints is not None:
            place = self._checkpoints.place
            log = (begins[self._authority], ends[self._authority])
            loaded = await self._checkpoints.load(begins[place], ends[place], loaded.start, log)
            if starts[place] > ends[place] and is_believed:  # cut short: the mark may rest on what is gone
                _log.error("checkpoints are missing: all is read from the first record", partition=self.number)
                loaded, starts[place] = Loaded(0, iter(())), ends[place]
            starts[place] = max(starts[place], ends[place])
        starts[self._authority] = loaded.start
        return {place: self._within(place, at, begins, ends) for place, at in starts.items()}, loaded

    def _within(self, place: Place, at: int, begins: Mapping[Place, int], ends: Mapping[Place, int]) -> int:
        if begins[place] <= at <= ends[place]:
            return at
        if place[0] in self._ages and at < begins[place]:
            _log.warning("commands are gone, and will be made again", topic=place[0], partition=place[1], offset=at)
            return begins[place]
        raise LogGap(
            f"{place[0]}[{place[1]}] has offsets {begins[place]} to {ends[place]}, but {at} is needed: "
            "restore the topic; what is reset to its beginning knows no job that was created below, and runs none such"
        )

    @property
    def own_end(self) -> int:
        """The offset behind what this process has appended to the authority, as far as that is not lost; else 0."""
        own = self._around.acknowledged(self._authority)
        return own if own != self._lost else 0

    async def _fold_loaded(self, loaded: Loaded) -> int:
        """What checkpoints know of jobs that were created below the mark; how many records that is."""
        known = 0
        for records in loaded.histories:
            self._handler.fold(records)
            self._rest_on_the_way(len(records))
            known += len(records)
            await asyncio.sleep(0)
        self._since = loaded.start
        self._handler.begin(loaded.start, loaded.live)
        if self._checkpointer is not None:
            self._checkpointer.start(loaded.start)
        return known

    async def _fold(self, start: int, end: int) -> int:
        position = max(start, end)
        async for read in replay(self._around.log, self._authority, start, end):
            for at in range(0, len(read), _PORTION):
                records = read[at : at + _PORTION]
                if self._checkpointer is not None:
                    self._checkpointer.note(records)
                self._note_age(records[-1])
                self._handler.fold(records)
                self._rest_on_the_way(len(records))
                self._last = records[-1]
                position = max(position, records[-1].offset + 1)
                if self._closing:
                    return position
                await asyncio.sleep(0)  # whoever is silent for seconds loses what it is reading
        return position

    def _rest_on_the_way(self, records: int) -> None:
        self._unrested += records
        if self._unrested >= _RESTED_EVERY:
            self._unrested = 0
            self._handler.rest_on_the_way()

    async def _insist(self, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
        while True:
            try:
                return await ask()
            except LogUnreachable as error:
                _log.warning("restoring waits", partition=self.number, error=str(error))
                await asyncio.sleep(_RETRY_PAUSE_S)

    async def _learn(self) -> None:
        """What the handler needs of other places: asked for until the log answers, or this closes."""
        while not self._closing:
            try:
                await self._handler.learn()
            except LogUnreachable as error:
                _log.warning("restoring waits", partition=self.number, error=str(error))
                await asyncio.sleep(_RETRY_PAUSE_S)
            else:
                break

    async def _turn(self) -> None:
        self._busy = self._turned = True
        batch = self._taken()
        ends = {self._places[topic]: records[-1].offset + 1 for topic, records in batch.items()}
        self._take_checkpoints(batch)
        if batch:
            await self._handler.handle(batch)
            await self._flush_undecodable()
        self._covered.update(ends)
        if self._authority[0] in batch:
            self._last = batch[self._authority[0]][-1]
        if self._due is not None and self._around.clock.monotonic() >= self._due:
            self._due = None
            await self._handler.tick()
        self._busy = False
        if self._around.clock.monotonic() - self._offered_at >= self._around.offer_interval_s:
            self._offer()
        self._rest()  # who is never idle has jobs that are
        if self._checkpointer is not None:
            self._checkpointer.look(self._covered[self._authority], self._handler.live)

    def _rest(self) -> None:
        now_s = self._around.clock.monotonic()
        if now_s - self._rested_at >= _RESTED_EVERY_S:
            self._rested_at = now_s
            self.resting = self._handler.rest()

    def _take_checkpoints(self, batch: dict[str, list[Record]]) -> None:
        """Not for the handler to see; a job's pieces count from the moment when they are read here."""
        if self._checkpoints is not None:
            self._checkpoints.take(batch.pop(self._checkpoints.place[0], ()))
        if self._checkpointer is not None:
            self._checkpointer.note(batch.get(self._authority[0], ()))

    def _taken(self) -> dict[str, list[Record]]:
        """The next of what has arrived, the authority first; what is left is taken in further turns."""
        batch: dict[str, list[Record]] = {}
        room = _PORTION
        for topic in self._places:
            queue = self._queues.pop(topic, [])
            if queue and room:
                batch[topic] = queue[:room]
            if len(queue) > room:
                self._queues[topic] = queue[room:]
            room -= len(batch.get(topic, ()))
        self._queued -= _PORTION - room
        if self._queued:
            self._stirred.set()
        if self._held and self._queued <= self._around.queue_limit // 2:
            self._held = False
            self._around.release(self.places)
        return batch

    def _offer(self) -> None:
        for place, position in self._covered.items():
            low = self._low(place[0])
            mark = position if low is None else min(low, position)
            if place == self._authority:  # so much is asked for by who restarts there, and by who deletes below
                mark = max(sealed.in_reach(mark, self._around.inputs.reach), self._since)
            self.offers[place] = mark
        if self._last is not None:
            self.notes[self._authority] = LastRead.at(self._last).note()
        self._offered_at = self._around.clock.monotonic()

    def _note_age(self, record: Record) -> None:
        if record.topic in self._ages:
            self._ages[record.topic].note(record.offset, record.timestamp_ms)

    def _low(self, topic: str) -> int | None:
        """The lowest offset of a topic that is still needed; none for long, of what is made again."""
        low = self._needed(topic)
        if low is None or topic not in self._ages:
            return low
        return max(low, self._ages[topic].held_from(self._around.clock.now().timestamp() * 1000))

    def _needed(self, topic: str) -> int | None:
        if topic == self._authority[0]:
            needed = (self._needed_of_jobs(), self._handler.low_water(topic))
            return min((at for at in needed if at is not None), default=None)
        if topic == self._around.inputs.checkpoints:
            return None
        return self._handler.low_water(topic)

    def _needed_of_jobs(self) -> int | None:
        if self._checkpoints is not None:
            return self._checkpoints.mark(self._handler.live())
        return min((creation_offset for _, creation_offset in self._handler.live()), default=None)

    def _checkpoints_of(self, around: PartitionDependencies) -> Checkpoints | None:
        topic = around.inputs.checkpoints
        if topic is None:
            return None
        counts, reach = around.pieces.counts, around.inputs.reach
        return Checkpoints(around.log, self._places[topic], self._authority, counts=counts, reach=reach)

    def _checkpointer_of(self, around: PartitionDependencies) -> Checkpointer | None:
        if self._checkpoints is None or not around.inputs.checkpoint_every:
            return None
        return Checkpointer(
            around.log,
            around.appender,
            around.clock,
            self._checkpoints,
            authority=self._authority,
            every=around.inputs.checkpoint_every,
            report=self._handler.checkpointed,
            sign=around.pieces.sign,
        )

    async def _wake_up_at(self, due_s: float) -> None:
        # uvloop's timers are up to a millisecond early: a turn before the time would not tick, and none would follow
        while (left_s := due_s - self._around.clock.monotonic()) > 0:
            await self._around.clock.sleep(max(left_s, _TIMER_RESOLUTION_S))
        self._stirred.set()

    async def _flush_undecodable(self) -> None:
        if self._undecodable:
            groups, self._undecodable = self._undecodable, []
            for refusal in await write_all(self._around.appender, groups):
                await self._quarantine_briefly(refusal)

    async def _quarantine_briefly(self, refusal: RefusedGroup) -> None:
        """A dead letter that the brokers refuse: without its value, which still lies where the record came from."""
        (letter,) = refusal.group
        reason = (("dlq_omitted", refusal.why.encode()),)
        headers = tuple(header for header in letter.headers if header[0] in _LETTER_HEADERS) + reason
        brief = Draft(letter.topic, letter.key, b"", headers, letter.partition)
        for again in await write_all(self._around.appender, [(brief,)]):
            _log.error("a dead letter is refused", topic=letter.topic, reason=again.why)


def _dead_letter(record: Record, reason: str) -> Draft:
    origin = (record.topic, str(record.partition), str(record.offset))
    headers = (
        ("dlq_id", derived("dlq", *origin).encode()),
        ("dlq_reason", reason.encode()),
        ("dlq_topic", origin[0].encode()),
        ("dlq_partition", origin[1].encode()),
        ("dlq_offset", origin[2].encode()),
    )
    return Draft(
        dead_letters(record.topic), record.key or b"", record.value, headers + record.headers, record.partition
    )
