"""Typed events for downstream systems, from the log itself; `aetheris-tool-sdk[subscribe]`, docs/subscribing.md."""

import asyncio
import time
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from ssl import SSLContext
from typing import Literal

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.base.refusal import WorkerIdTaken
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.log.interface import Log, LogError, LogUnreachable, Membership, Place, Reader
from aetheris.runtime.log.names import unclaimed
from aetheris.sdk.received import GROUPS, Received, received

Start = Literal["beginning", "now"] | Mapping[int, int]
"""Where to begin: partition → offset, others at their beginning."""

_TOPIC = Topic.JOBS_EVENTS
_POLL_S = 0.5
_SILENCE_S = 10.0
_RETRY_S = 0.5
_TRIES = 20


class MemberTaken(LogError):
    """Another process reads as this member of this group; the message names both, and says what to do."""

    code = "member_taken"


@dataclass(frozen=True)
class _Place:
    """A member's name in a group: whoever else lives under it keeps it."""

    group: str
    member: str
    former: tuple[str, ...] = ()  # nothing proves an earlier one's end but the end of its session

    def hold(self, incarnation: str) -> None:
        """Nobody comes after on this machine for whom it would be kept."""

    def membership(self, log: Log) -> Membership:
        return log.membership(GROUPS + self.group, self.member, (_TOPIC,), tenure=self)

    async def free(self, log: Log) -> None:
        """Return once nobody lives under it.

        Raises:
            MemberTaken: somebody does.
        """
        try:
            await unclaimed(
                partial(self._others, log),
                self.member,
                self.former,
                clock=SystemClock(),
                session_timeout_s=log.session_timeout_s,
            )
        except WorkerIdTaken:
            raise self.taken() from None

    async def _others(self, log: Log) -> Mapping[str, str]:
        """Asked for a while: a cluster's first group makes the topic that groups are kept in."""
        for _ in range(_TRIES - 1):
            with suppress(LogUnreachable):
                return await log.members(GROUPS + self.group)
            await asyncio.sleep(_RETRY_S)
        return await log.members(GROUPS + self.group)

    def taken(self) -> MemberTaken:
        named = f"another process reads as member {self.member} of the group {self.group}"
        return MemberTaken(f"{named}: give each process a member's name of its own, or end the other one")


class Subscription:
    """An endless stream of events: at least once with a group, by position without; each job's in log order."""

    def __init__(
        self, log: Log, start: Start, place: _Place | None, types: Collection[str], jobs: Collection[str]
    ) -> None:
        self._log = log
        self._start = start
        self._place = place
        self._members = None if place is None else place.membership(log)
        self._types = frozenset(types)
        self._jobs = frozenset(jobs)
        self._positions: dict[int, int] = {}
        self._arrived: set[int] = set()
        self._reader: Reader | None = None
        self._heard_s = time.monotonic()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def positions(self) -> Mapping[int, int]:
        """Partition → the offset after the last record that was looked at; what `start` takes."""
        return dict(self._positions)

    async def events(self, *, until_now: bool = False) -> AsyncGenerator[Received]:
        """The events, one by one, for ever; or up to what the log holds now.

        Raises:
            LogGap: the log no longer has an offset that is needed: a gap is an error, never a jump.
            MemberTaken: another process has taken this member's place.
            MembershipLost: the group can't go on.
        """
        ends = await self._ends() if until_now else {}
        while not (until_now and self._read_up_to(ends)):
            self._check_membership()
            await self._take_over()
            for partition, records in (await self._poll()).items():
                for record in records:
                    if record.offset < self._positions.get(partition, record.offset + 1):
                        break  # the partition went to another member meanwhile
                    self._positions[partition] = record.offset + 1
                    found = received(record)
                    if self._wanted(found):
                        yield found

    async def done(self, received: Received) -> None:
        """The group need not see this event again, nor those before it in its partition; nothing without a group.

        Raises:
            MembershipLost: another member reads the partition now, and will see the event again.
            LogUnreachable: whether it was noted is not known.
        """
        if self._members is not None:
            await self._members.commit({(_TOPIC, received.partition): received.offset + 1})

    async def open(self) -> None:
        """Connect; the partitions come with the first events.

        Raises:
            LogUnreachable: no broker answers.
            MemberTaken: another process reads as this member.
        """
        if self._place is None or self._members is None:
            self._arrived = set(range(await self._log.partitions(_TOPIC)))
            await self._take_over()  # "now" is when it is said
            return
        await self._place.free(self._log)
        await self._members.start(self._assigned, self._revoked)
        self._keeper = asyncio.create_task(self._members.keep())

    async def close(self) -> None:
        """Disconnect."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        if self._members is not None:
            await self._members.stop(leave=True)
        await self._drop_reader()

    async def _assigned(self, partitions: frozenset[int]) -> None:
        self._arrived |= partitions

    async def _revoked(self, partitions: frozenset[int]) -> None:
        self._arrived -= partitions
        gone = [number for number in partitions if self._positions.pop(number, None) is not None]
        if self._reader is not None:
            self._reader.remove([(_TOPIC, number) for number in gone])

    async def _take_over(self) -> None:
        """Begin to read what came to us."""
        fresh = self._arrived - self._positions.keys()
        if not fresh:
            return
        begins = await self._begins(fresh)
        begins = {number: at for number, at in begins.items() if number in self._arrived}
        self._positions.update(begins)
        if self._reader is not None:
            self._reader.add({(_TOPIC, number): at for number, at in begins.items()})

    async def _begins(self, partitions: Iterable[int]) -> dict[int, int]:
        places: list[Place] = [(_TOPIC, number) for number in sorted(partitions)]
        kept = {} if self._members is None else await self._members.committed(places)
        fresh = [place for place in places if kept.get(place) is None]
        started = await self._started(fresh)
        return {place[1]: offset if (offset := kept.get(place)) is not None else started[place] for place in places}

    async def _started(self, places: Collection[Place]) -> dict[Place, int]:
        if not places:
            return {}
        if self._start == "now":
            return await self._log.end_offsets(places)
        first = await self._log.beginning_offsets(places)
        named: Mapping[int, int] = {} if isinstance(self._start, str) else self._start
        return {place: named.get(place[1], first[place]) for place in places}

    async def _poll(self) -> dict[int, list[Record]]:
        """What came; a reader that broke or fell silent is made anew at the same places."""
        try:
            reader = await self._connected()
            batch = await reader.poll(_POLL_S)
            if batch:
                self._heard_s = time.monotonic()
            elif time.monotonic() - self._heard_s > _SILENCE_S:
                await self._look_behind()
        except LogUnreachable:
            await self._drop_reader()
            await asyncio.sleep(_RETRY_S)
            return {}
        return {place[1]: records for place, records in batch.items()}

    async def _look_behind(self) -> None:
        self._heard_s = time.monotonic()
        ends = await self._ends()
        if any(ends[number] > at for number, at in self._positions.items()):
            await self._drop_reader()

    async def _connected(self) -> Reader:
        if self._reader is None:
            reader = self._log.reader()
            await reader.start()
            reader.assign({(_TOPIC, number): at for number, at in self._positions.items()})
            self._reader = reader
        return self._reader

    async def _drop_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.stop()

    async def _ends(self) -> dict[int, int]:
        count = await self._log.partitions(_TOPIC)
        ends = await self._log.end_offsets([(_TOPIC, number) for number in range(count)])
        return {place[1]: offset for place, offset in ends.items()}

    def _read_up_to(self, ends: Mapping[int, int]) -> bool:
        """Whether every partition that is ours was read up to its end; with a group, once it has any."""
        ours = self._positions
        return bool(ours) and all(at >= ends[number] for number, at in ours.items())

    def _check_membership(self) -> None:
        if self._keeper is None or self._place is None or not self._keeper.done():
            return
        try:
            self._keeper.result()
        except WorkerIdTaken:
            raise self._place.taken() from None

    def _wanted(self, received: Received) -> bool:
        return (not self._types or received.type in self._types) and (not self._jobs or received.job_id in self._jobs)


@asynccontextmanager
async def subscribe(
    kafka: str | Log,
    *,
    start: Start = "beginning",
    group: str | None = None,
    member: str = "0",
    types: Collection[str] = (),
    jobs: Collection[str] = (),
    tls: SSLContext | None = None,
    prefix: str = "",
) -> AsyncGenerator[Subscription]:
    """A subscription to aetheris.jobs.events.v1 that is connected.

    Args:
        kafka: bootstrap servers, or a log that is started.
        start: where to begin; with a group, only where it has noted nothing yet.
        group: resume after what was `done` under this name; its members share the partitions.
        member: this process's stable name within the group. While another process reads under it this one is refused;
            the place of one that was killed is free when its session has ended, 6 s after its last word.
        tls: who the brokers are, and who we are.
        prefix: the installation's AETHERIS_PREFIX; it stands before the group's name, too.
        types, jobs: only these event types and job ids; empty: all.

    Raises:
        LogUnreachable: no broker answers.
        MemberTaken: another process reads as this member of this group, also after three sessions.
    """
    log: Log = KafkaLog(kafka, tls=tls, prefix=prefix) if isinstance(kafka, str) else kafka
    place = _Place(group, member) if group is not None else None
    subscription = Subscription(log, start, place, types, jobs)
    try:
        if isinstance(kafka, str):
            await log.start()
        await subscription.open()
        yield subscription
    finally:
        await subscription.close()
        if isinstance(kafka, str):
            await log.stop()
