"""MemoryLog: the log's seam in memory, with the faults that a real one has (one suite runs against both)."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakSet

from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.messages import event_base
from aetheris.protocol.tables.attendants import Attendant
from aetheris.runtime.log.interface import (
    AppendRefused,
    Batch,
    Listener,
    LogGap,
    LogUnreachable,
    MembershipLost,
    Place,
    RefusedGroup,
    Tenure,
    Written,
)
from aetheris.runtime.log.partitioning import place_of, weigh


@dataclass
class MemoryFaults:
    """What goes wrong next; each count is used up by the appends (or polls) that it hits."""

    lost_acks: int = 0
    """Written, but the writer isn't told: it writes again, so the log has the group twice."""
    duplicates: int = 0
    """Written twice at once."""
    append_delay_s: float = 0.0
    """Time between an append and its record in the log."""
    refuses: Callable[[Group], str | None] = lambda _group: None
    """Why the brokers will never have a group; asked for each that is appended."""
    unreachable_polls: int = 0
    """Polls that fail, as after an outage."""


@dataclass
class _Partition:
    first: int = 0
    records: list[Record] = field(default_factory=list[Record])

    @property
    def end(self) -> int:
        return self.first + len(self.records)


class MemoryLog:
    """A log in memory; topics exist once created or first used."""

    session_timeout_s = 6.0

    def __init__(self, partitions: int = 4, topics: Mapping[str, int] | None = None) -> None:
        self.faults = MemoryFaults()
        self._default = partitions
        self._counts = dict(topics or {})
        self._places: dict[Place, _Partition] = defaultdict(_Partition)
        self._groups: dict[str, _Group] = defaultdict(_Group)
        self._written = asyncio.Condition()
        self._clock_ms = 0
        self._readers: WeakSet[MemoryReader] = WeakSet()

    async def start(self) -> None:
        """Nothing to connect to."""

    async def stop(self, deadline_s: float = 5.0) -> None:
        """Nothing to disconnect from."""

    def appender(self) -> "MemoryAppender":
        """A new appender."""
        return MemoryAppender(self)

    def reader(self, max_wait_s: float = 0.1) -> "MemoryReader":  # noqa: ARG002  nothing waits at a broker here
        """A new reader."""
        reader = MemoryReader(self)
        self._readers.add(reader)
        return reader

    def silence_readers(self) -> None:
        """Readers made so far deliver nothing any more, as aiokafka's sometimes don't after an outage."""
        for reader in self._readers:
            reader.silent = True

    def membership(
        self,
        group: str,
        member: str,
        topics: Collection[str],
        tenure: Tenure | None = None,  # noqa: ARG002  one process
    ) -> "MemoryMembership":
        """A member; the test says by `assign` which partitions it has (all, until it says so)."""
        return MemoryMembership(self, self._groups[group], member, topics)

    def attendance(self, group: str, name: str, topic: str) -> "MemoryMembership":
        """A member that is there to be seen."""
        return MemoryMembership(self, self._groups[group], name, (topic,))

    async def members(self, group: str) -> dict[str, str]:
        """Those in `group`: a member's name is its id."""
        return {name: name for name in self._groups[group].members}

    async def attendants(self, group: str) -> dict[str, Attendant]:
        """Those in `group`: all know what this build does."""
        return dict.fromkeys(self._groups[group].members, Attendant(event_base.KNOWN_RULES))

    async def committed_by(self, group: str, places: Collection[Place]) -> dict[Place, int]:
        """What `group` has committed there."""
        return {place: at for place, at in self._groups[group].offsets.items() if place in places}

    async def noted_by(self, group: str, places: Collection[Place]) -> dict[Place, str]:
        """What `group` has noted beside that."""
        return {place: note for place, note in self._groups[group].notes.items() if place in places}

    async def assign(self, group: str, partitions: Mapping[str, Collection[int]]) -> None:
        """Rebalance `group`: member → partition numbers; revocations come first."""
        members = self._groups[group].members
        for name, member in members.items():
            await member.change(frozenset(), frozenset(partitions.get(name, ())))
        for name, member in members.items():
            await member.change(frozenset(partitions.get(name, ())), frozenset(partitions.get(name, ())))

    async def cluster_id(self) -> str | None:
        """It is on no brokers."""
        return None

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        return self.count(topic)

    async def beginning_offsets(self, places: Collection[Place], deadline_s: float = 10.0) -> dict[Place, int]:  # noqa: ARG002  answers at once
        """The first offset that each place has."""
        return {place: self._places[place].first for place in places}

    async def end_offsets(self, places: Collection[Place], deadline_s: float = 10.0) -> dict[Place, int]:  # noqa: ARG002  answers at once
        """The offset that the next record of each place will get."""
        return {place: self._places[place].end for place in places}

    def create(self, topic: str, partitions: int) -> None:
        """Give a topic another number of partitions than the default; only before its first use."""
        self._counts[topic] = partitions

    def count(self, topic: str) -> int:
        """How many partitions a topic has."""
        return self._counts.get(topic, self._default)

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """What a topic holds, by partition, then offset."""
        numbers = range(self.count(topic)) if partition is None else (partition,)
        return [record for number in numbers for record in self._places[topic, number].records]

    def delete_below(self, place: Place, offset: int) -> None:
        """What retention does: records below `offset` are gone."""
        held = self._places[place]
        held.records = [record for record in held.records if record.offset >= offset]
        held.first = max(held.first, offset)

    def pass_time(self, milliseconds: int) -> None:
        """What is written from now on is so much younger."""
        self._clock_ms += milliseconds

    def lose(self, place: Place) -> None:
        """The partition is made anew: nothing of what it had is there."""
        self._places[place] = _Partition()

    def held(self, place: Place, position: int, at_most: int) -> list[Record]:
        """Records of a place from `position` on.

        Raises:
            LogGap: out of range.
        """
        held = self._places[place]
        if not held.first <= position <= held.end:
            raise LogGap(f"out of range: {place[0]}[{place[1]}]@{position}")
        return held.records[position - held.first : position - held.first + at_most]

    async def write(self, place: Place, group: Group) -> tuple[int, int]:
        """One group, whole; the offset of its first record, and their time."""
        held = self._places[place]
        first = held.end
        self._clock_ms += 1
        for draft in group:
            held.records.append(_record(draft, place, held.end, self._clock_ms))
        async with self._written:
            self._written.notify_all()
        return first, self._clock_ms

    async def arrival(self, timeout_s: float) -> None:
        """Return when something was written, or after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s), self._written:
                await self._written.wait()
        except TimeoutError:
            return


class MemoryAppender:
    """Writes at once, in the order of the calls."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._queue: deque[tuple[Place, Group]] = deque()
        self._writing = asyncio.Lock()
        self._started = False
        self._listener: Callable[[Written], None] | None = None

    async def start(self) -> None:
        """Nothing to connect to."""
        self._started = True

    async def stop(self, deadline_s: float = 5.0) -> None:
        """Whatever is appended afterwards is refused."""
        async with asyncio.timeout(deadline_s), self._writing:
            self._started = False

    async def append(self, groups: Sequence[Group]) -> None:
        """Write every group; see `aetheris.runtime.log.interface.Appender`."""
        for group in groups:
            weigh(group)
        places = [place_of(group, self._log.count(group[0].topic) if group else 1) for group in groups]
        async with self._writing:
            if not self._started:
                raise LogUnreachable("the appender is stopped")
            if self._log.faults.append_delay_s:
                await asyncio.sleep(self._log.faults.append_delay_s)
            refusals: list[RefusedGroup] = []
            for place, group in zip(places, groups, strict=True):
                why = self._log.faults.refuses(group)
                if why is None:
                    await self._write(place, group)
                else:
                    refusals.append(RefusedGroup(group, why))
        if refusals:
            raise AppendRefused(refusals)

    def report(self, listener: Callable[[Written], None]) -> None:
        """Call `listener` with what is acknowledged; see `aetheris.runtime.log.interface.Appender`."""
        self._listener = listener

    def stuck_s(self) -> float:
        """Nothing gets stuck here."""
        return 0.0

    def refusals(self) -> Mapping[str, str]:
        """Every topic takes what this writer sends."""
        return {}

    async def _write(self, place: Place, group: Group) -> None:
        """Once, and again for every acknowledgement that is lost; the last is heard."""
        first = await self._log.write(place, group)
        faults = self._log.faults
        while faults.lost_acks or faults.duplicates:
            if faults.lost_acks:
                faults.lost_acks -= 1
            else:
                faults.duplicates -= 1
            first = await self._log.write(place, group)
        if self._listener is not None and group:
            self._listener(Written(place, first[0], first[1], group))


class MemoryReader:
    """Reads places assigned by hand."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.silent = False
        self._positions: dict[Place, int] = {}
        self._paused: set[Place] = set()

    async def start(self) -> None:
        """Nothing to connect to."""

    async def stop(self, deadline_s: float = 5.0) -> None:
        """Nothing to disconnect from."""

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read exactly these places from now on."""
        self._positions = dict(positions)
        self._paused.clear()

    def add(self, positions: Mapping[Place, int]) -> None:
        """Read these too."""
        self._positions.update(positions)

    def remove(self, places: Collection[Place]) -> None:
        """Read these no longer."""
        for place in places:
            self._positions.pop(place, None)
            self._paused.discard(place)

    def skip(self, place: Place, position: int) -> None:
        """The place from there on."""
        if place in self._positions:
            self._positions[place] = position

    def pause(self, places: Collection[Place]) -> None:
        """Nothing from these until `resume`."""
        self._paused.update(place for place in places if place in self._positions)

    def resume(self, places: Collection[Place]) -> None:
        """From these again."""
        self._paused.difference_update(places)

    async def position(self, place: Place) -> int:
        """The next offset that `poll` will look at."""
        return self._positions[place]

    async def poll(self, timeout_s: float, max_records: int = 2000) -> Batch:
        """Records that arrived, or nothing after `timeout_s`; see `aetheris.runtime.log.interface.Reader`."""
        if self._log.faults.unreachable_polls:
            self._log.faults.unreachable_polls -= 1
            raise LogUnreachable("fault")
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            await asyncio.sleep(0)
            batch = {} if self.silent else self._take(max_records)
            left = deadline - asyncio.get_running_loop().time()
            if batch or left <= 0:
                return batch
            await self._log.arrival(min(left, 0.05))

    def _take(self, max_records: int) -> Batch:
        batch: Batch = {}
        for place, position in list(self._positions.items()):
            if place in self._paused or max_records <= 0:
                continue
            records = self._log.held(place, position, max_records)
            if records:
                batch[place] = records
                self._positions[place] = records[-1].offset + 1
                max_records -= len(records)
        return batch


@dataclass
class _Group:
    members: dict[str, "MemoryMembership"] = field(default_factory=dict[str, "MemoryMembership"])
    offsets: dict[Place, int] = field(default_factory=dict[Place, int])
    notes: dict[Place, str] = field(default_factory=dict[Place, str])


class MemoryMembership:
    """A member whose partitions the test assigns; the first member of a group gets all."""

    def __init__(self, log: MemoryLog, group: _Group, member: str, topics: Collection[str]) -> None:
        self._log = log
        self._group = group
        self._member = member
        self._topics = tuple(topics)
        self._ours: frozenset[int] = frozenset()
        self._assigned: Listener | None = None
        self._revoked: Listener | None = None

    async def start(self, assigned: Listener, revoked: Listener) -> None:
        """Join."""
        self._assigned, self._revoked = assigned, revoked
        alone = not self._group.members
        self._group.members[self._member] = self
        everything = frozenset(range(self._log.count(self._topics[0])))
        await self.change(everything if alone else frozenset(), everything)

    async def stop(self, deadline_s: float = 5.0, *, leave: bool = False) -> None:  # noqa: ARG002  the listener has its own
        """Leave."""
        if self._group.members.get(self._member) is self:
            await self.change(frozenset(), frozenset())
            del self._group.members[self._member]

    async def keep(self) -> None:
        """Stay a member until cancelled."""
        await asyncio.Event().wait()

    async def committed(self, places: Collection[Place], deadline_s: float = 10.0) -> dict[Place, int | None]:  # noqa: ARG002  answers at once
        """The group's offsets; None where it never committed one."""
        return {place: self._group.offsets.get(place) for place in places}

    async def noted(self, places: Collection[Place], deadline_s: float = 10.0) -> dict[Place, str]:  # noqa: ARG002  answers at once
        """What was committed beside the group's offsets."""
        return {place: self._group.notes.get(place, "") for place in places}

    async def commit(
        self,
        offsets: Mapping[Place, int],
        deadline_s: float = 10.0,  # noqa: ARG002  answers at once
        *,
        notes: Mapping[Place, str] | None = None,
    ) -> None:
        """Keep these offsets.

        Raises:
            MembershipLost: they aren't ours.
        """
        if not {number for _, number in offsets} <= self._ours:
            raise MembershipLost("not assigned")
        self._group.offsets.update(offsets)
        self._group.notes.update({place: (notes or {}).get(place, "") for place in offsets})

    async def change(self, wanted: frozenset[int], keep: frozenset[int]) -> None:
        """Revoke what is not in `keep`, then assign what of `wanted` is new."""
        gone = self._ours - keep
        if gone and self._revoked is not None:
            await self._revoked(gone)
        self._ours -= gone
        fresh = wanted - self._ours
        self._ours |= fresh
        if self._assigned is not None and (fresh or not wanted):
            await self._assigned(fresh)


def _record(draft: Draft, place: Place, offset: int, timestamp_ms: int) -> Record:
    return Record(place[0], place[1], offset, timestamp_ms, draft.key, draft.headers, draft.value)
