"""The live end of jobs.events, read once for all who listen: event streams, and waits for an answer.

History and live are spliced without gap or repeat: subscribe first, then read history up to the end of the log,
then drop the live records that lie below it.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from aetheris.protocol.records import Record
from aetheris.protocol.topics import Topic
from aetheris.streams.clock import Clock
from aetheris.streams.log import Log, Place
from aetheris.streams.partitioning import partition_of
from aetheris.streams.pump import Pump

MAX_UNREAD = 10_000
"""Records that a listener may lag behind; it is then cut off, and resumes from the log."""

_LOOK_S = 5.0
"""Pause between looks at whether the reader fell silent."""


class FeedClosed(Exception):
    """No more records come: the listener was too slow, or the service stops."""


class Subscription:
    """The records of one job that arrive from now on."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Record | None] = asyncio.Queue()

    async def get(self) -> Record:
        """The next record.

        Raises:
            FeedClosed: none will come.
        """
        record = await self._queue.get()
        if record is None:
            self._queue.put_nowait(None)
            raise FeedClosed
        return record

    def put(self, record: Record) -> None:
        """Hand a record to the listener, or cut it off if it lags too far."""
        if self._queue.qsize() < MAX_UNREAD:
            self._queue.put_nowait(record)
        else:
            self.close()

    def close(self) -> None:
        """Let the listener end after what it has."""
        self._queue.put_nowait(None)


class Feed:
    """One reader over all partitions of jobs.events; records go to those who subscribed to their job."""

    def __init__(self, log: Log, clock: Clock, pause_s: float) -> None:
        self._log = log
        self._clock = clock
        self._pump = Pump(log, self._hand_out, pause_s)
        self._listeners: dict[bytes, list[Subscription]] = {}
        self._closed = False

    async def start(self) -> None:
        """Take the present end of the log as the beginning.

        Raises:
            LogUnreachable: no answer from the brokers.
        """
        places = [(Topic.JOBS_EVENTS, number) for number in range(await self._log.partitions(Topic.JOBS_EVENTS))]
        self._pump.add(await self._log.end_offsets(places))

    async def run(self) -> None:
        """Read and hand out, until cancelled.

        Raises:
            LogGap: the log lacks an offset that is needed.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pump.run())
            tasks.create_task(self._watch())

    def place_of(self, job_id: str) -> tuple[Place, int]:
        """The job's partition, and an offset in it below which nothing appended from now on will lie."""
        place = (Topic.JOBS_EVENTS, partition_of(job_id, len(self._pump.positions)))
        return place, self._pump.positions[place]

    @contextmanager
    def subscribe(self, job_id: str) -> Generator[Subscription]:
        """Listen to a job; nothing appended after this is missed."""
        key, subscription = job_id.encode(), Subscription()
        if self._closed:
            subscription.close()
        self._listeners.setdefault(key, []).append(subscription)
        try:
            yield subscription
        finally:
            self._listeners[key].remove(subscription)
            if not self._listeners[key]:
                del self._listeners[key]

    def close(self) -> None:
        """End every subscription."""
        self._closed = True
        for subscriptions in self._listeners.values():
            for subscription in subscriptions:
                subscription.close()

    def _hand_out(self, _place: Place, records: list[Record]) -> None:
        for record in records:
            for subscription in self._listeners.get(record.key or b"", ()):
                subscription.put(record)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_S)
            await self._pump.check_silence()
