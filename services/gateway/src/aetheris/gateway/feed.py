"""The live end of jobs.events, read once for all who listen: event streams, and waits for an answer.

History and live are spliced without gap or repeat: subscribe first, then read history up to the end of the log,
then drop the live records that lie below it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Container
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress

import structlog

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.interface import Log, LogUnreachable, Place
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.pump import Pump
from aetheris.runtime.redis.wake_up import AWAKE_S

_log = structlog.get_logger(__name__)

MAX_UNREAD = 10_000
"""Records that a listener may lag behind; it is then cut off, and resumes from the log."""

_LOOK_S = 5.0
"""Pause between looks at whether the reader fell silent."""


class FeedClosed(Exception):
    """No more records come: the listener was too slow, or the service stops."""


class JobFeed:
    """The records of one job that arrive from now on; with `types` only those whose ce_type is one of them."""

    def __init__(self, types: Container[bytes | None] | None = None) -> None:
        self._types = types
        self._unread: deque[Record] = deque()
        self._wake_up = asyncio.Event()
        self._closed = False

    async def get(self) -> Record:
        """The next record.

        Raises:
            FeedClosed: none will come.
        """
        await self._some()
        return self._unread.popleft()

    async def take(self, at_most: int) -> list[Record]:
        """The next records, at least one: what is there by now.

        Raises:
            FeedClosed: none will come.
        """
        await self._some()
        return [self._unread.popleft() for _ in range(min(at_most, len(self._unread)))]

    def put(self, record: Record) -> None:
        """Hand a record to the listener, or cut it off if it lags too far."""
        if self._closed or (self._types is not None and record.header("ce_type") not in self._types):
            return
        if len(self._unread) < MAX_UNREAD:
            self._unread.append(record)
            self._wake_up.set()
        else:
            self.close()

    def close(self) -> None:
        """Let the listener end after what it has."""
        self._closed = True
        self._wake_up.set()

    async def _some(self) -> None:
        while not self._unread:
            if self._closed:
                raise FeedClosed
            self._wake_up.clear()
            await self._wake_up.wait()


class Feed:
    """One reader of jobs.events, over the partitions that somebody listens to; each record goes to its job's listeners.

    A partition without listeners is not read: a listener brings it back at the log's present end.
    """

    def __init__(
        self, log: Log, clock: Clock, pause_s: float, lies: Callable[[str], int | None] = lambda _job_id: None
    ) -> None:
        """`lies`: the partition of a job that is known; another will lie where its hash points by then."""
        self._lies = lies
        self._log = log
        self._clock = clock
        self._pump = Pump(log, self._hand_out, pause_s)
        self._ends: dict[Place, int] = {}
        self._listeners: dict[Place, dict[bytes, list[JobFeed]]] = {}
        self._joining = asyncio.Lock()
        self._closed = False

    async def start(self) -> None:
        """Learn of the partitions, and where they end.

        Raises:
            LogUnreachable: no answer from the brokers.
        """
        places = [(str(Topic.JOBS_EVENTS), number) for number in range(await self._log.partitions(Topic.JOBS_EVENTS))]
        self._ends = await self._log.end_offsets(places)
        self._listeners = {place: {} for place in places}

    async def run(self) -> None:
        """Read and hand out, until cancelled.

        Raises:
            LogGap: the log lacks an offset that is needed.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pump.run())
            tasks.create_task(self._watch())

    @property
    def partitions(self) -> int:
        """Of jobs.events."""
        return len(self._ends)

    def place_of(self, job_id: str) -> tuple[Place, int]:
        """The job's partition, and an offset in it below which nothing appended from now on will lie."""
        known = self._lies(job_id)
        place = (str(Topic.JOBS_EVENTS), partition_of(job_id, len(self._ends)) if known is None else known)
        return place, self._pump.positions.get(place, self._ends.get(place, 0))

    @asynccontextmanager
    async def subscribe(
        self,
        job_id: str,
        types: Container[bytes | None] | None = None,
        within: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> AsyncGenerator[JobFeed]:
        """Listen to a job, or to some types (ce_type) of its records; nothing appended after this is missed.

        `within`: what bounds the question to the brokers that it may take.

        Raises:
            LogUnreachable: no answer from the brokers.
        """
        place, _ = self.place_of(job_id)
        listeners, key, subscription = self._listeners.setdefault(place, {}), job_id.encode(), JobFeed(types)
        listeners.setdefault(key, []).append(subscription)
        try:
            if place not in self._pump.positions:
                async with within():
                    await self._join(place)
            if self._closed:
                subscription.close()
            yield subscription
        finally:
            listeners[key].remove(subscription)
            if not listeners[key]:
                del listeners[key]

    def learned(self, job_id: str, partition: int) -> None:
        """A job has become known, and where it lies: who listens elsewhere is cut off, and resumes from the log."""
        key = job_id.encode()
        for (_, number), listeners in self._listeners.items():
            for subscription in listeners.get(key, ()) if number != partition else ():
                subscription.close()

    def wake(self) -> None:
        """A wake-up came: read on without pauses for a while."""
        self._pump.wake(AWAKE_S)

    def close(self) -> None:
        """End every subscription."""
        self._closed = True
        for listeners in self._listeners.values():
            for subscriptions in listeners.values():
                for subscription in subscriptions:
                    subscription.close()

    async def _join(self, place: Place) -> None:
        async with self._joining:
            if place not in self._pump.positions:
                self._pump.add(await self._log.end_offsets([place]))

    def _hand_out(self, place: Place, records: list[Record]) -> None:
        listeners = self._listeners[place]
        for record in records:
            for subscription in listeners.get(record.key or b"", ()):
                subscription.put(record)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_S)
            await self._pump.check_silence()
            await self._grow()
            await self._leave()

    async def _grow(self) -> None:
        """The partitions that the topic was given since begin at 0."""
        with suppress(LogUnreachable):
            count = await self._log.partitions(Topic.JOBS_EVENTS)
            for number in range(len(self._ends), count):
                self._ends[str(Topic.JOBS_EVENTS), number] = 0

    async def _leave(self) -> None:
        """Read no longer what nobody listens to, but know where it ends."""
        async with self._joining:
            quiet = [place for place, listeners in self._listeners.items() if not listeners]
            self._pump.remove([place for place in quiet if place in self._pump.positions])
            try:
                self._ends.update(await self._log.end_offsets(quiet, _LOOK_S) if quiet else {})
            except LogUnreachable as error:
                _log.warning("no end offsets", error=str(error))
