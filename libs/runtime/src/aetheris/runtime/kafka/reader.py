"""KafkaReader: places assigned by hand, positions of our own, one fetch at a time for each broker that leads some."""

import asyncio
import math
from collections import deque
from collections.abc import Collection, Mapping

from aiokafka.errors import for_code

from aetheris.protocol.base.records import Record
from aetheris.runtime.kafka import wire
from aetheris.runtime.kafka.batches import Damaged, unpack
from aetheris.runtime.kafka.brokers import Brokers
from aetheris.runtime.kafka.connection import Address, Disconnected, KafkaConnection
from aetheris.runtime.log.interface import GAP_BELIEVED_S, Batch, LogGap, LogUnreachable, Place

_RETRY_PAUSE_S = 0.1
_ANSWER_S = 10.0
"""How much later than it said a broker may answer a fetch."""
_LATE_S = 1.0
"""After a fetch is so late, and then each time as long: who leads its places by now is asked; who does not is left."""
_LEADERLESS_S = 0.5
"""After which a place that nobody led is looked for again."""
_NEVER = -math.inf
_NEW_SESSION = {wire.FETCH_SESSION_ID_NOT_FOUND, wire.INVALID_FETCH_SESSION_EPOCH}


class _Arrived:
    """What a fetch brought of one place, to be read from `position` on."""

    __slots__ = ("batches", "place", "position")

    def __init__(self, place: Place, position: int, batches: bytes) -> None:
        self.place = place
        self.position = position
        self.batches = unpack(batches, place, position)


class _Source:
    """The fetches from one broker."""

    __slots__ = ("address", "arrived", "connection", "doubt_s", "due_s", "places", "sent", "session", "under_way")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.places: list[Place] = []
        """What is wanted of it."""
        self.connection: KafkaConnection | None = None
        self.under_way: asyncio.Future[bytes] | asyncio.Task[KafkaConnection] | None = None
        self.due_s = 0.0
        """When its answer is given up, whoever leads."""
        self.doubt_s = 0.0
        """When it is asked whether it still leads."""
        self.session = wire.Session()
        self.sent: dict[Place, int] = {}
        """Where the broker was last told to read on."""
        self.arrived: deque[_Arrived] = deque()

    def answered(self) -> bool:
        """Whether what was under way is done, and not yet looked at."""
        return self.under_way is not None and self.under_way.done()

    def misses(self, place: Place) -> bool:
        """Whether a fetch waits at the broker that doesn't ask for the place."""
        return self.under_way is not None and self.connection is not None and place not in self.sent

    def ask(
        self, connection: KafkaConnection, positions: Mapping[Place, int], limits: wire.FetchLimits, prefix: str
    ) -> "asyncio.Future[bytes]":
        """Send a fetch."""
        if not self.session.epoch:
            self.sent.clear()
        moved = {place: positions[place] for place in self.places if self.sent.get(place) != positions[place]}
        left = [place for place in self.sent if place not in self.places]
        for place in left:
            del self.sent[place]
        self.sent.update(moved)
        return connection.call(wire.FETCH, wire.fetch(self.session, moved, left, limits, prefix))

    def is_late(self, now_s: float) -> bool:
        """Whether its answer is so late that somebody else may lead."""
        return self.under_way is not None and not self.under_way.done() and now_s > self.doubt_s

    def close(self) -> None:
        """Forget what is under way, and what the broker knows."""
        asked = self.under_way
        if asked is not None and not asked.cancel() and not asked.cancelled() and asked.exception() is None:
            answer = asked.result()
            if isinstance(answer, KafkaConnection):
                answer.close()
        if self.connection is not None:
            self.connection.close()
        self.under_way = self.connection = None
        self.session = wire.Session()
        self.sent.clear()


class KafkaReader:
    """A consumer without a group. It fetches while it is polled, and not otherwise."""

    def __init__(self, brokers: Brokers, max_wait_s: float) -> None:
        self._brokers = brokers
        self._limits = wire.FetchLimits(max(1, round(max_wait_s * 1000)))
        self._started = False
        self._positions: dict[Place, int] = {}
        self._paused: set[Place] = set()
        self._sources: dict[Address, _Source] = {}
        self._arranged_until = _NEVER
        """When the places are to be arranged anew."""
        self._astray: dict[Place, tuple[int, float]] = {}
        """Places that are out of range: the position, and since when."""
        self._tired = False
        """A broker doesn't lead what it was asked for: its places are arranged anew, after a pause."""
        self._stirring: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Begin; it connects when it is polled."""
        self._started = True

    async def stop(self, deadline_s: float = 5.0) -> None:  # noqa: ARG002  nothing that it waits for
        """Disconnect; a poll under way ends with LogUnreachable."""
        self._started = False
        self._forget()
        self._stir()

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read exactly these places from now on."""
        self._positions = dict(positions)
        self._astray.clear()
        self._paused.clear()
        self._rearrange()

    def add(self, positions: Mapping[Place, int]) -> None:
        """Read these too; the others keep their positions."""
        self._positions.update(positions)
        self._rearrange()

    def remove(self, places: Collection[Place]) -> None:
        """Read these no longer."""
        for place in places:
            self._positions.pop(place, None)
            self._astray.pop(place, None)
            self._paused.discard(place)
        self._rearrange()

    def skip(self, place: Place, position: int) -> None:
        """Read the place from `position` on; what a fetch under way brings of it from there on is taken."""
        if place in self._positions:
            self._positions[place] = position

    def pause(self, places: Collection[Place]) -> None:
        """Fetch nothing from these until `resume`."""
        self._paused.update(place for place in places if place in self._positions)
        self._rearrange()

    def resume(self, places: Collection[Place]) -> None:
        """Fetch from these again."""
        self._paused.difference_update(places)
        self._rearrange()

    async def position(self, place: Place) -> int:
        """The next offset that `poll` will look at (past control records and what compaction took)."""
        self._check_started()
        return self._positions[place]

    async def poll(self, timeout_s: float, max_records: int = 2000) -> Batch:
        """Records that arrived, or nothing after `timeout_s`; none of a place where all that came was known already.

        Raises:
            LogGap: a place's offset is out of range, at each look at its leader for `GAP_BELIEVED_S`.
            LogUnreachable: the connection is broken; make a new reader.
        """
        clock = asyncio.get_running_loop().time
        until_s = clock() + timeout_s
        while True:
            self._check_started()
            self._hear()
            batch = self._taken(max_records)
            if batch:
                return batch
            if self._tired:
                await self._rest()
            await self._ask()
            left_s = until_s - clock()
            if left_s <= 0:
                return {}
            await self._stirred(left_s)

    def _hear(self) -> None:
        """What the brokers answered since."""
        for source in self._sources.values():
            done = source.under_way
            if done is None or not source.answered():
                continue
            source.under_way = None
            try:
                answer = done.result()
                if isinstance(answer, KafkaConnection):
                    source.connection = answer
                else:
                    self._note(source, answer)
            except Disconnected as error:
                if isinstance(done, asyncio.Task):
                    raise self._broken(str(error)) from None
                source.close()  # it may only have been idle for too long
                self._arranged_until = _NEVER
                self._brokers.doubt()
            except wire.Malformed:
                raise self._broken("an answer that can't be read") from None

    def _note(self, source: _Source, answer: bytes) -> None:
        code, number, parts = wire.fetched(answer, self._brokers.prefix)
        if code in _NEW_SESSION:
            source.session = wire.Session()
            return
        if code:
            raise self._broken(_named(code))
        source.session.follow(number)
        for part in parts:
            position = self._positions.get(part.place)
            if position is None or part.place in self._paused or source.sent.get(part.place, position + 1) > position:
                continue  # the assignment changed meanwhile
            if part.error == wire.OFFSET_OUT_OF_RANGE:
                self._stray(part.place, position)
            elif part.error in wire.PASSING:
                self._tired = True
            elif part.error:
                raise self._broken(f"{part.place[0]}: {_named(part.error)}")
            else:
                self._astray.pop(part.place, None)
            if part.batches:
                source.arrived.append(_Arrived(part.place, position, part.batches))

    def _stray(self, place: Place, position: int) -> None:
        """Ask who leads it, and look there again, before it is believed."""
        now_s = asyncio.get_running_loop().time()
        at, since_s = self._astray.get(place, (position, now_s))
        if at != position:
            since_s = now_s
        self._astray[place] = position, since_s
        if now_s - since_s >= GAP_BELIEVED_S:
            raise LogGap(f"out of range: {place[0]}[{place[1]}]@{position}")
        self._tired = True

    def _taken(self, most: int) -> Batch:
        found: Batch = {}
        count = 0
        for source in self._sources.values():
            while source.arrived and count < most:
                arrived = source.arrived[0]
                records = self._next(arrived)
                if records is None:
                    source.arrived.popleft()
                    found.setdefault(arrived.place, [])
                elif records:
                    found.setdefault(arrived.place, []).extend(records)
                    count += len(records)
        return found

    def _next(self, arrived: _Arrived) -> list[Record] | None:
        """The records of the next batch; None where there is none, or where it is wanted no longer."""
        place, position = arrived.place, arrived.position
        if self._positions.get(place) != position or place in self._paused:
            return None
        try:
            records, following = next(arrived.batches, ([], None))
        except Damaged as error:
            raise self._broken(str(error)) from None
        if following is None:
            return None
        arrived.position = self._positions[place] = following
        return records

    async def _rest(self) -> None:
        self._tired = False
        self._brokers.doubt()
        self._forget()
        await asyncio.sleep(_RETRY_PAUSE_S)

    async def _ask(self) -> None:
        """A fetch from each broker that has none to answer."""
        now_s = asyncio.get_running_loop().time()
        late = [source for source in self._sources.values() if source.is_late(now_s)]
        if late:
            self._brokers.doubt()
        if late or now_s >= self._arranged_until:
            await self._arrange(now_s)
        for source in late:
            source.doubt_s = now_s + _LATE_S
            if not source.places:
                source.close()
        for source in self._sources.values():
            if source.under_way is not None:
                if now_s > source.due_s:
                    raise self._broken("a fetch was not answered")
            elif source.places:
                asked = (
                    source.ask(source.connection, self._positions, self._limits, self._brokers.prefix)
                    if source.connection is not None
                    else asyncio.create_task(self._brokers.connect(source.address))
                )
                asked.add_done_callback(self._stir)
                answer_s = now_s + self._limits.wait_ms / 1000
                source.under_way, source.doubt_s, source.due_s = asked, answer_s + _LATE_S, answer_s + _ANSWER_S

    async def _arrange(self, now_s: float) -> None:
        """Each wanted place to the broker that leads it. One that waits is asked anew where it should give more."""
        self._arranged_until = math.inf  # unless the assignment changes meanwhile
        wanted = self._positions.keys() - self._paused
        try:
            leaders = await self._brokers.leaders(wanted) if wanted else {}
        except LogUnreachable as error:
            raise self._broken(str(error)) from None
        self._check_started()  # it may have been stopped meanwhile
        for source in self._sources.values():
            source.places = []
        for place, address in leaders.items():
            if place not in self._positions or place in self._paused:
                continue  # the assignment changed meanwhile
            self._sources.setdefault(address, _Source(address)).places.append(place)
            if self._sources[address].misses(place):
                self._sources[address].close()
        if len(leaders) < len(wanted):
            self._arranged_until = min(self._arranged_until, now_s + _LEADERLESS_S)

    def _rearrange(self) -> None:
        self._arranged_until = _NEVER
        self._stir()

    async def _stirred(self, within_s: float) -> None:
        """Return once something was answered, or the assignment changed."""
        if self._arranged_until == _NEVER or any(source.answered() for source in self._sources.values()):
            return
        loop = asyncio.get_running_loop()
        self._stirring = loop.create_future()
        timer = loop.call_later(within_s, self._stir)
        try:
            await self._stirring
        finally:
            self._stirring = None
            timer.cancel()

    def _stir(self, _done: object = None) -> None:
        if self._stirring is not None and not self._stirring.done():
            self._stirring.set_result(None)

    def _broken(self, why: str) -> LogUnreachable:
        self._brokers.doubt()
        self._forget()
        return LogUnreachable(why)

    def _forget(self) -> None:
        for source in self._sources.values():
            source.close()
        self._sources.clear()
        self._arranged_until = _NEVER

    def _check_started(self) -> None:
        if not self._started:
            raise LogUnreachable("the reader is not started")


def _named(code: int) -> str:
    return for_code(code).__name__
