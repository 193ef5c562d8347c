"""KafkaAppender: an outbox per partition; while a batch is in flight further groups queue, then go as one."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from aiokafka import errors

from aetheris.protocol.base.records import Draft, Group
from aetheris.runtime.kafka import wire
from aetheris.runtime.kafka.batches import HEADER_BYTES, pack
from aetheris.runtime.kafka.brokers import Brokers
from aetheris.runtime.kafka.connection import Address, Disconnected, KafkaConnection
from aetheris.runtime.log.interface import MAX_GROUP_BYTES, AppendRefused, LogUnreachable, Place, RefusedGroup, Written
from aetheris.runtime.log.partitioning import place_of, weigh

_log = structlog.get_logger(__name__)

_RETRY_PAUSE_S = 0.1
_LOST = wire.Produced(wire.NOT_LEADER)
_UNKNOWN = wire.Produced(errors.UnknownError.errno)
_WRITTEN = frozenset({wire.NO_ERROR, wire.DUPLICATE_SEQUENCE_NUMBER})
_BIRTH_S = 10.0
_ID_S = 2.0
_LONGEST_REST_S = 30.0
_LONGEST_DOUBT_S = 5.0


class _Ticket:
    """Done when the last of an append's groups is."""

    __slots__ = ("done", "left", "refusals")

    def __init__(self, groups: int) -> None:
        self.left = groups
        self.refusals: list[RefusedGroup] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self) -> None:
        self.left -= 1
        if self.left or self.done.done():
            return
        if self.refusals:
            self.done.set_exception(AppendRefused(self.refusals))
        else:
            self.done.set_result(None)

    def refuse(self, group: Group, why: str) -> None:
        self.refusals.append(RefusedGroup(group, why))
        self.settle()


@dataclass(slots=True)
class _Parcel:
    group: Group
    weight: int
    since: float
    ticket: _Ticket


_NO_LIMIT = 1 << 20


class _Lane:
    """The outbox of one partition: its oldest groups make up the batch that is being written."""

    __slots__ = (
        "batch", "drafts", "in_flight", "most", "parcels", "place", "queue", "refused", "resting", "rests", "time_ms"
    )  # fmt: skip

    def __init__(self, place: Place) -> None:
        self.place = place
        self.queue: deque[_Parcel] = deque()
        self.in_flight = False
        self.most = _NO_LIMIT
        """Groups of a batch: fewer, while the one that is refused is looked for."""
        self.refused = ""
        """Why the brokers take nothing of this writer here."""
        self.resting = False
        self.rests = 0
        """How often in a row it had to."""
        self.forget()

    def forget(self) -> None:
        """What was sent of it is unknown; it is written anew."""
        self.batch: bytes | None = None
        self.drafts: list[Draft] = []
        self.parcels = self.time_ms = 0

    def close_batch(self, producer: "_Producer", wall_s: float) -> bytes:
        """As many whole groups, from the oldest on, as one record batch holds; the same until it is acknowledged."""
        if self.batch is None:
            room = MAX_GROUP_BYTES - HEADER_BYTES
            self.drafts, self.parcels = [], 0
            for parcel in self.queue:
                room -= parcel.weight
                if room < 0 or self.parcels == self.most:
                    break
                self.parcels += 1
                self.drafts += parcel.group
            self.time_ms = round(wall_s * 1000)
            sequence = producer.sequences.get(self.place, 0)
            self.batch = pack(self.drafts, self.time_ms, producer.id, producer.epoch, sequence)
        return self.batch

    def written(self, answer: wire.Produced) -> Written | None:
        """Where the batch lies, if that is known."""
        if answer.first < 0:
            return None
        return Written(self.place, answer.first, self.time_ms if answer.time_ms < 0 else answer.time_ms, self.drafts)

    def settle(self) -> None:
        """The batch is acknowledged."""
        for _ in range(self.parcels):
            self.queue.popleft().ticket.settle()
        self.most = min(2 * self.most, _NO_LIMIT)
        self.refused, self.rests = "", 0
        self.forget()

    def refuse(self, why: str) -> None:
        """The batch can't be written for what it holds: half of it is tried, down to the group that is refused."""
        if self.parcels > 1:
            self.most = (self.parcels + 1) // 2
        else:
            parcel = self.queue.popleft()
            parcel.ticket.refuse(parcel.group, why)
        self.forget()

    def fail(self, error: BaseException) -> None:
        for parcel in self.queue:
            if not parcel.ticket.done.done():
                parcel.ticket.done.set_exception(error)
        self.queue.clear()
        self.forget()


class _Producer:
    """One life of an idempotent producer; after the first doubt it is abandoned, never asked again."""

    def __init__(self, number: int, epoch: int) -> None:
        self.id = number
        self.epoch = epoch
        self.sequences: dict[Place, int] = {}
        self.leaders: dict[Place, Address] = {}
        self.seeking = False
        """Leaders are being asked for."""
        self.connections: dict[Address, KafkaConnection] = {}
        self.busy: set[Address] = set()
        """Brokers that have a request to answer, or to which a connection is being made."""

    def acknowledge(self, lane: _Lane) -> None:
        """The lane's batch is written."""
        self.sequences[lane.place] = (self.sequences.get(lane.place, 0) + len(lane.drafts)) & 0x7FFFFFFF
        lane.settle()

    def close(self) -> None:
        """Disconnect: what is under way stays unknown."""
        for connection in self.connections.values():
            connection.close()


class KafkaAppender:
    """Groups of a partition in their order, each whole in one record batch, again and again until acknowledged."""

    def __init__(
        self,
        brokers: Brokers,
        partitions: Callable[[str], Awaitable[int]],
        send_deadline_s: float = 10.0,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._brokers = brokers
        self._ask_partitions = partitions
        self._send_deadline_s = send_deadline_s
        self._wall = wall
        self._partitions: dict[str, int] = {}
        self._lanes: dict[Place, _Lane] = {}
        self._waiting: dict[Place, _Lane] = {}
        """Lanes that have something to send, or to send again."""
        self._producer: _Producer | None = None
        self._stopping = False
        self._asking = asyncio.Lock()
        self._asking_since: float | None = None
        self._flushing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: Callable[[Written], None] | None = None

    async def start(self) -> None:
        """Connect.

        Raises:
            LogUnreachable: no broker answers.
        """
        self._producer = await self._new_producer()

    async def stop(self, deadline_s: float = 5.0) -> None:
        """Write what is queued, as far as the deadline allows, and disconnect."""
        self._stopping = True
        left = {parcel.ticket.done for lane in self._lanes.values() for parcel in lane.queue}
        if left:
            await asyncio.wait(left, timeout=deadline_s)
        producer, self._producer = self._producer, None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail(LogUnreachable("the appender was stopped: written or not"))
        if producer is not None:
            producer.close()

    async def append(self, groups: Sequence[Group]) -> None:
        """Write every group; see `aetheris.runtime.log.interface.Appender`."""
        if self._stopping:
            raise LogUnreachable("the appender is stopped")
        if not groups:
            return
        if self._asking.locked() or not {draft.topic for group in groups for draft in group} <= self._partitions.keys():
            await self._learn(groups)
        weights = [weigh(group) for group in groups]
        places = [place_of(group, self._partitions[group[0].topic] if group else 1) for group in groups]
        ticket, now = _Ticket(len(groups)), time.monotonic()
        for group, weight, place in zip(groups, weights, places, strict=True):
            lane = self._lanes.get(place)
            if lane is None:
                lane = self._lanes[place] = _Lane(place)
            lane.queue.append(_Parcel(group, weight, now, ticket))
            if not lane.resting:
                self._waiting[place] = lane
        self._flush_soon()
        await ticket.done

    def report(self, listener: Callable[[Written], None]) -> None:
        """Call `listener` with what is acknowledged; see `aetheris.runtime.log.interface.Appender`."""
        self._listener = listener

    def stuck_s(self) -> float:
        """For how long the oldest unfinished group has been waiting, in seconds."""
        waiting = [lane.queue[0].since for lane in self._lanes.values() if lane.queue]
        if self._asking_since is not None:
            waiting.append(self._asking_since)
        return time.monotonic() - min(waiting) if waiting else 0.0

    def refusals(self) -> Mapping[str, str]:
        """Topics that take nothing of this writer now, and why."""
        return {lane.place[0]: lane.refused for lane in self._lanes.values() if lane.refused}

    async def _learn(self, groups: Sequence[Group]) -> None:
        """The partition counts of new topics; behind one another, so that appends keep their order."""
        async with self._asking:
            self._asking_since = time.monotonic()
            try:
                for topic in {draft.topic for group in groups for draft in group} - self._partitions.keys():
                    self._partitions[topic] = await self._count(topic)
            finally:
                self._asking_since = None

    async def _count(self, topic: str) -> int:
        """A topic's partitions, asked for as long as a write would be tried."""
        while not self._stopping:
            with suppress(LogUnreachable):
                return await self._ask_partitions(topic)
            await asyncio.sleep(_RETRY_PAUSE_S)
        raise LogUnreachable("the appender was stopped: nothing of it was written")

    def _flush_soon(self) -> None:
        """In the next pass of the loop: all that is appended in this one goes together."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Each broker that is free gets all that waits for it, in one request."""
        self._flushing = False
        producer = self._producer
        if producer is None:
            return
        loads: dict[Address, list[_Lane]] = {}
        unknown: set[Place] = set()
        for place, lane in self._waiting.items():
            address = producer.leaders.get(place)
            if address is None:
                unknown.add(place)
            elif address not in producer.busy and not lane.in_flight:
                loads.setdefault(address, []).append(lane)
        if unknown and not producer.seeking:
            producer.seeking = True
            self._begin(self._seek(producer, unknown))
        for address, lanes in loads.items():
            producer.busy.add(address)
            connection = producer.connections.get(address)
            if connection is None or connection.lost:
                self._begin(self._connect(producer, address))
            else:
                self._send(producer, address, connection, lanes)

    def _send(self, producer: _Producer, address: Address, connection: KafkaConnection, lanes: Iterable[_Lane]) -> None:
        batches: dict[Place, bytes] = {}
        sent: list[_Lane] = []
        for lane in lanes:
            del self._waiting[lane.place]
            batch = self._batch_of(lane, producer)
            if batch is not None:
                batches[lane.place] = batch
                lane.in_flight = True
                sent.append(lane)
        body = wire.produce(batches, round(self._send_deadline_s * 1000), self._brokers.prefix)
        answer = connection.call(wire.PRODUCE, body)
        late = asyncio.get_running_loop().call_later(self._send_deadline_s, self._doubt, producer, "no answer")
        answer.add_done_callback(partial(self._answered, producer, address, sent, late))

    def _batch_of(self, lane: _Lane, producer: _Producer) -> bytes | None:
        """What the lane has to send, if anything; what can't be packed is refused like what brokers won't have."""
        while lane.queue:
            try:
                return lane.close_batch(producer, self._wall())
            except Exception as error:  # noqa: BLE001  a bug here must reach whoever waits, or it would wait for ever
                lane.refuse(type(error).__name__)
        return None

    def _answered(
        self,
        producer: _Producer,
        address: Address,
        sent: Sequence[_Lane],
        late: asyncio.TimerHandle,
        answer: "asyncio.Future[bytes]",
    ) -> None:
        late.cancel()
        error = answer.exception()
        if producer is not self._producer:
            return
        try:
            produced = {} if error else wire.produced(answer.result(), self._brokers.prefix)
        except wire.Malformed:
            produced = {}
        again = False
        doubtful: list[_Lane] = []
        why = ""
        for lane in sent:
            of_it = produced.get(lane.place, _LOST if error else _UNKNOWN)
            lane.in_flight = False
            if of_it.error in _WRITTEN:
                self._pass_on(lane.written(of_it))
                producer.acknowledge(lane)
            elif of_it.error in wire.PASSING:
                again = True
            elif of_it.error in wire.REFUSES_GROUP:
                lane.refuse(_name(of_it.error))
            elif of_it.error in wire.REFUSES_WRITER:
                self._refuse(lane, of_it.error)
                continue
            else:
                doubtful.append(lane)
                why = _name(of_it.error)
                continue
            if lane.queue:
                self._waiting[lane.place] = lane
        if doubtful:
            self._doubt(producer, why, doubtful)
        elif again:
            self._begin(self._rest(producer, address))
        else:
            producer.busy.discard(address)
            if self._waiting:
                self._flush_soon()

    def _pass_on(self, written: Written | None) -> None:
        if written is not None and self._listener is not None:
            self._listener(written)

    def _refuse(self, lane: _Lane, code: int) -> None:
        """Nothing of the batch was written, nor would be what follows it: it is offered again, ever more rarely."""
        if not lane.refused:
            _log.error("refused by the brokers", topic=lane.place[0], partition=lane.place[1], error=_name(code))
        lane.refused = _name(code)
        if code == wire.INVALID_TIMESTAMP:
            lane.forget()  # the next one bears the time that it is then
        self._let_rest(lane, _LONGEST_REST_S, 1.0)

    def _let_rest(self, lane: _Lane, longest_s: float, first_s: float) -> None:
        self._waiting.pop(lane.place, None)
        rest_s = min(longest_s, first_s * 2 ** min(lane.rests, 16))
        lane.resting = True
        lane.rests += 1
        asyncio.get_running_loop().call_later(rest_s, self._rested, lane)

    def _rested(self, lane: _Lane) -> None:
        lane.resting = False
        if lane.queue:
            self._waiting[lane.place] = lane
            self._flush_soon()

    def _doubt(self, producer: _Producer, why: str, doubtful: Sequence[_Lane] = ()) -> None:
        """Whether something was written is unknown: it is written again, by a new producer.

        Those that the brokers have no good answer for rest before, the longer the more often it happens.
        """
        if producer is not self._producer:
            return
        _log.warning("append unknown", error=why)
        self._producer = None
        producer.close()
        self._brokers.doubt()
        for lane in self._lanes.values():
            lane.in_flight = False
            lane.forget()
            if lane.queue and not lane.resting:
                self._waiting[lane.place] = lane
        for lane in doubtful:
            self._let_rest(lane, _LONGEST_DOUBT_S, _RETRY_PAUSE_S)
        self._begin(self._renew())

    async def _renew(self) -> None:
        while self._producer is None:
            try:
                self._producer = await self._new_producer()
            except LogUnreachable:
                await asyncio.sleep(_RETRY_PAUSE_S)
        self._flush_soon()

    async def _new_producer(self) -> _Producer:
        """By whichever broker answers."""
        why = "no answer"
        with suppress(TimeoutError):
            async with asyncio.timeout(_BIRTH_S):
                while True:
                    try:
                        code, number, epoch = await self._ask_for_id(await self._brokers.any())
                    except (Disconnected, TimeoutError, wire.Malformed) as error:
                        why = type(error).__name__
                    else:
                        if not code:
                            return _Producer(number, epoch)
                        if code not in wire.STARTING:
                            raise LogUnreachable(f"no producer id: {_name(code)}")
                        why = _name(code)
                    await asyncio.sleep(_RETRY_PAUSE_S)
        raise LogUnreachable(f"no producer id: {why}")

    async def _ask_for_id(self, connection: KafkaConnection) -> tuple[int, int, int]:
        """The error code, the id and its epoch; a broker that does not answer soon is not waited for."""
        try:
            async with asyncio.timeout(_ID_S):
                return wire.producer_id(await connection.call(wire.INIT_PRODUCER_ID, wire.init_producer_id()))
        finally:
            connection.close()

    async def _seek(self, producer: _Producer, places: set[Place]) -> None:
        with suppress(LogUnreachable):
            producer.leaders.update(await self._brokers.leaders(places))
        self._flush_soon()
        if not places <= producer.leaders.keys():
            await asyncio.sleep(_RETRY_PAUSE_S)
        producer.seeking = False
        self._flush_soon()

    async def _connect(self, producer: _Producer, address: Address) -> None:
        try:
            connection = await self._brokers.connect(address)
        except Disconnected:
            await self._rest(producer, address)
            return
        if producer is not self._producer:
            connection.close()
            return
        producer.connections[address] = connection
        producer.busy.discard(address)
        self._flush_soon()

    async def _rest(self, producer: _Producer, address: Address) -> None:
        """Let things settle, then ask who leads, and send the same batches again."""
        self._brokers.doubt()
        await asyncio.sleep(_RETRY_PAUSE_S)
        producer.leaders.clear()
        producer.busy.discard(address)
        self._flush_soon()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # a bug, that must reach whoever waits
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        for lane in self._lanes.values():
            lane.fail(error)


def _name(code: int) -> str:
    return errors.for_code(code).__name__
