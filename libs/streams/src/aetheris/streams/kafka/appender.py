"""KafkaAppender: an outbox per partition; while a batch is in flight further groups queue, then go as one."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from ssl import SSLContext

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from aetheris.protocol.records import Group
from aetheris.streams.kafka.clients import close_producer, open_client
from aetheris.streams.kafka.tls import secured
from aetheris.streams.log import MAX_GROUP_BYTES, LogUnreachable, Place
from aetheris.streams.partitioning import place_of, weigh

_log = structlog.get_logger(__name__)

_RETRY_PAUSE_S = 0.1
_BATCH_HEADER_BYTES = 61


class _Ticket:
    """Done when the last of an append's groups is."""

    __slots__ = ("done", "left")

    def __init__(self, groups: int) -> None:
        self.left = groups
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self) -> None:
        self.left -= 1
        if self.left == 0 and not self.done.done():
            self.done.set_result(None)


@dataclass(slots=True)
class _Parcel:
    group: Group
    weight: int
    since: float
    ticket: _Ticket


class _Lane:
    """The outbox of one partition."""

    __slots__ = ("place", "queue", "task")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.queue: deque[_Parcel] = deque()
        self.task: asyncio.Task[None] | None = None

    def fitting(self) -> list[_Parcel]:
        """As many whole groups, from the oldest on, as one record batch holds."""
        room = MAX_GROUP_BYTES - _BATCH_HEADER_BYTES
        taken: list[_Parcel] = []
        for parcel in self.queue:
            room -= parcel.weight
            if room < 0:
                break
            taken.append(parcel)
        return taken


class _Producer:
    """One life of an idempotent producer; after the first doubt it is abandoned, never asked again."""

    def __init__(self, bootstrap: str, tls: SSLContext | None) -> None:
        self._kafka = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            max_batch_size=MAX_GROUP_BYTES,
            **secured(tls),
        )
        self._waiting: set[asyncio.Future[None]] = set()

    async def start(self, bootstrap: str) -> None:
        await open_client(self._kafka, bootstrap)

    async def deliver(self, place: Place, parcels: Sequence[_Parcel], deadline_s: float) -> bool:
        """Whether the brokers acknowledged the parcels, in one record batch; False: unknown."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._send(place, parcels)
        except (KafkaError, TimeoutError, OSError) as error:
            _log.warning("append unknown", topic=place[0], partition=place[1], error=type(error).__name__)
            return False
        return True

    async def _send(self, place: Place, parcels: Sequence[_Parcel]) -> None:
        batch = self._kafka.create_batch()
        for parcel in parcels:
            for draft in parcel.group:
                written = batch.append(
                    timestamp=None, key=draft.key, value=draft.value or None, headers=list(draft.headers)
                )
                if written is None:
                    raise RuntimeError("a record batch is full before its groups are in: weigh() is wrong")
        batch.close()
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(acknowledged)
        try:
            sent = await self._kafka.send_batch(batch, place[0], partition=place[1])
            sent.add_done_callback(partial(_pass_on, acknowledged))
            await acknowledged
        finally:
            self._waiting.discard(acknowledged)

    async def abandon(self, deadline_s: float) -> None:
        """Whoever waits learns that its fate is unknown."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(KafkaError("abandoned"))
        await close_producer(self._kafka, deadline_s)


def _pass_on(acknowledged: "asyncio.Future[None]", sent: "asyncio.Future[object]") -> None:
    error = None if sent.cancelled() else sent.exception()
    if acknowledged.done():
        return
    if sent.cancelled() or error is not None:
        acknowledged.set_exception(error or KafkaError("cancelled"))
    else:
        acknowledged.set_result(None)


class KafkaAppender:
    """Groups of a partition in their order, each whole in one record batch, again and again until acknowledged."""

    def __init__(
        self,
        bootstrap: str,
        partitions: Callable[[str], Awaitable[int]],
        send_deadline_s: float = 10.0,
        *,
        tls: SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self._bootstrap = bootstrap
        self._ask_partitions = partitions
        self._send_deadline_s = send_deadline_s
        self._partitions: dict[str, int] = {}
        self._lanes: dict[Place, _Lane] = {}
        self._producer: _Producer | None = None
        self._stopping = False
        self._asking = asyncio.Lock()
        self._renewing = asyncio.Lock()

    async def start(self) -> None:
        """Connect.

        Raises:
            LogUnreachable: no broker answers.
        """
        self._producer = await self._connect()

    async def stop(self, deadline_s: float = 5.0) -> None:
        """Write what is queued, as far as the deadline allows, and disconnect."""
        self._stopping = True
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=deadline_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for lane in self._lanes.values():
            _fail(lane, LogUnreachable("the appender was stopped: written or not"))
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.abandon(deadline_s)

    async def append(self, groups: Sequence[Group]) -> None:
        """Write every group; see `aetheris.streams.log.Appender`."""
        if self._stopping or self._producer is None:
            raise LogUnreachable("the appender is stopped")
        if not groups:
            return
        if self._asking.locked() or not {draft.topic for group in groups for draft in group} <= self._partitions.keys():
            await self._learn(groups)
        weights = [weigh(group) for group in groups]
        places = [place_of(group, self._partitions[group[0].topic] if group else 1) for group in groups]
        ticket, now = _Ticket(len(groups)), time.monotonic()
        for group, weight, place in zip(groups, weights, places, strict=True):
            self._enqueue(place, _Parcel(group, weight, now, ticket))
        await ticket.done

    def stuck_s(self) -> float:
        """For how long the oldest unfinished group has been waiting, in seconds."""
        oldest = min((lane.queue[0].since for lane in self._lanes.values() if lane.queue), default=None)
        return 0.0 if oldest is None else time.monotonic() - oldest

    async def _learn(self, groups: Sequence[Group]) -> None:
        """The partition counts of new topics; behind one another, so that appends keep their order."""
        async with self._asking:
            for topic in {draft.topic for group in groups for draft in group} - self._partitions.keys():
                self._partitions[topic] = await self._ask_partitions(topic)

    def _enqueue(self, place: Place, parcel: _Parcel) -> None:
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = _Lane(place)
        lane.queue.append(parcel)
        if lane.task is None:
            lane.task = asyncio.create_task(self._drain(lane))

    async def _drain(self, lane: _Lane) -> None:
        try:
            while lane.queue:
                parcels = lane.fitting()
                await self._deliver(lane.place, parcels)
                for parcel in parcels:
                    lane.queue.popleft()
                    parcel.ticket.settle()
        except Exception as error:  # noqa: BLE001  a bug here must reach whoever waits, or it would wait for ever
            _fail(lane, error)
        finally:
            lane.task = None

    async def _deliver(self, place: Place, parcels: Sequence[_Parcel]) -> None:
        """For ever: what is unknown is written again, by a new producer (aiokafka #1017, #510)."""
        while True:
            producer = self._producer
            if producer is None:
                raise LogUnreachable("the appender is stopped")
            if await producer.deliver(place, parcels, self._send_deadline_s):
                return
            await self._renew(producer)

    async def _renew(self, doubtful: _Producer) -> None:
        async with self._renewing:
            if self._producer is not doubtful:
                return
            await doubtful.abandon(2.0)
            while self._producer is doubtful:
                try:
                    self._producer = await self._connect()
                except LogUnreachable:
                    await asyncio.sleep(_RETRY_PAUSE_S)

    async def _connect(self) -> _Producer:
        producer = _Producer(self._bootstrap, self._tls)
        await producer.start(self._bootstrap)
        return producer


def _fail(lane: _Lane, error: Exception) -> None:
    for parcel in lane.queue:
        if not parcel.ticket.done.done():
            parcel.ticket.done.set_exception(error)
    lane.queue.clear()
