"""A pump: one reader that feeds many partitions, eagerly or in pauses, and is renewed when it falls silent."""

import asyncio
from collections.abc import Callable, Collection, Mapping

import structlog

from aetheris.protocol.base.records import Record
from aetheris.runtime.log.interface import GAP_BELIEVED_S, Batch, Log, LogGap, LogUnreachable, Place, Reader, Written

Sink = Callable[[Place, list[Record]], None]

_log = structlog.get_logger(__name__)

_POLL_S = 1.0
_IDLE_S = 5.0
"""What a fetch waits at the broker while nothing arrives."""
_RETRY_PAUSE_S = 0.2
_OFFSETS_DEADLINE_S = 5.0
_MANY = 30
_FULL = 1000
"""Records of one poll, behind which there are likely more."""
_FAR_BEHIND = 10_000
"""Records from which on nothing is put off: with a pause after each poll, the backlog of a lasting load only grows."""
_LONGEST_STRETCH = 4
_LONGEST_STRETCHED_S = 0.12
"""Beyond, what is read late costs memory everywhere: a job is kept until its seal is read."""
_FEW = 4
_GATHERING_S = 0.0003
_LONGEST_GATHERING_S = 0.015


class Pump:
    """Delivers what arrives to `sink`, in log order per place.

    With a pause, it takes what has arrived once a pause (one request for all of it); `wake` cuts the pause
    short, and who is far behind makes none. Without one it delivers at once, but gathers a little where many jobs go
    on side by side. The first record after a silence is delivered at once.
    """

    def __init__(self, log: Log, sink: Sink, pause_s: float = 0.0, *, own: bool = False) -> None:
        self._log = log
        self._sink = sink
        self._pause_s = pause_s
        self._own = own
        self._reader: Reader | None = None
        self._positions: dict[Place, int] = {}
        self._held: set[Place] = set()
        self._behind: dict[Place, int] = {}
        self._shrunk: dict[Place, float] = {}
        """Places that ended below what was read, and since when."""
        self._rung = False
        self._waking: asyncio.Future[None] | None = None
        """Who waits for that, or for the pause to be over."""
        self._napping = False
        self._unread: dict[Place, int] = {}
        """Up to where this process has appended, beyond what was delivered."""
        self._hurried = False
        """Somebody waits for that."""
        self._awake_until = 0.0
        self.lag = 0
        """Records that the log had beyond what was delivered, at the last look (see `check_silence`)."""

    @property
    def positions(self) -> Mapping[Place, int]:
        """The next offset that each place will deliver."""
        return self._positions

    def add(self, positions: Mapping[Place, int]) -> None:
        """Deliver these too, from the offsets given."""
        self._positions.update(positions)
        if self._reader is not None:
            self._reader.add(positions)

    def remove(self, places: Collection[Place]) -> None:
        """Deliver these no longer, from this moment on."""
        for place in places:
            self._positions.pop(place, None)
            self._held.discard(place)
        if self._reader is not None:
            self._reader.remove(places)

    def hold(self, places: Collection[Place]) -> None:
        """Fetch nothing of these: their partition has enough to do."""
        self._held.update(place for place in places if place in self._positions)
        if self._reader is not None:
            self._reader.pause(places)

    def release(self, places: Collection[Place]) -> None:
        """Fetch these again."""
        self._held.difference_update(places)
        if self._reader is not None:
            self._reader.resume(places)

    def wake(self, awake_s: float = 0.0) -> None:
        """Read now, and without pauses for so long."""
        self._awake_until = asyncio.get_running_loop().time() + awake_s
        self._ring()

    def written(self, written: Written) -> None:
        """What this process has appended: right behind what was read it counts as read, else it is read at once."""
        place = written.place
        position = self._positions.get(place)
        if position is None or written.first < position or place in self._held:
            return
        if written.first > position:
            self._unread[place] = written.following
            if self._own:
                self.catch_up()
            return
        self._positions[place] = written.following
        if self._reader is not None:
            self._reader.skip(place, written.following)
        self._sink(place, written.records())

    def catch_up(self) -> None:
        """Read at once up to what this process has appended."""
        self._hurried = True
        if self._napping and self._is_behind():
            self._ring()

    async def run(self) -> None:
        """Pump until cancelled; connections are made anew as often as it takes.

        Raises:
            LogGap: the log lacks an offset that is needed.
        """
        try:
            while True:
                try:
                    reader = self._reader or await self._connect()
                    await self._round(reader)
                except LogUnreachable as error:
                    _log.warning("reader lost", error=str(error))
                    await self._drop_reader()
                    await asyncio.sleep(_RETRY_PAUSE_S)
        finally:
            await self._drop_reader()

    async def check_silence(self) -> None:
        """Renew the reader if since the last check a place delivered nothing although the log has more.

        Raises:
            LogGap: for `GAP_BELIEVED_S` the log ended below what was read: acknowledged records are gone.
        """
        watched = {place: at for place, at in self._positions.items() if place not in self._held}
        try:
            ends = await self._log.end_offsets(watched, _OFFSETS_DEADLINE_S) if watched else {}
        except LogUnreachable as error:
            _log.warning("no end offsets", error=str(error))
            return
        self.lag = sum(max(0, end - watched[place]) for place, end in ends.items())
        now_s = asyncio.get_running_loop().time()
        shrunk = [place for place, end in ends.items() if end < watched[place]]
        self._shrunk = {place: self._shrunk.get(place, now_s) for place in shrunk}
        for (topic, partition), since_s in self._shrunk.items():
            if now_s - since_s >= GAP_BELIEVED_S:
                raise LogGap(f"{topic}[{partition}] ends at {ends[topic, partition]}, below what was read")
        behind = {place: at for place, at in watched.items() if at < ends[place]}
        silent = [place for place, at in behind.items() if self._behind.get(place) == at == self._positions.get(place)]
        self._behind = behind
        if silent:
            _log.warning("reader silent", places=[f"{topic}[{partition}]" for topic, partition in silent])
            await self._drop_reader()

    async def _round(self, reader: Reader) -> None:
        batch = await reader.poll(_POLL_S)
        for place, records in batch.items():
            if place in self._positions and records:
                self._positions[place] = records[-1].offset + 1
                self._sink(place, records)
        if self.lag >= _FAR_BEHIND and sum(map(len, batch.values())) >= _FULL:
            await asyncio.sleep(0)
        elif batch and reader is self._reader:
            await self._nap(_gathering_s(batch), _stretched(self._pause_s, batch))

    async def _nap(self, least_s: float, most_s: float) -> None:
        """Let records gather at the broker; what is not fetched meanwhile costs nothing."""
        self._hurried = self._hurried and self._is_behind()
        if self._hurried or asyncio.get_running_loop().time() < self._awake_until:
            most_s = 0.0
        if least_s or most_s:
            self._napping = True
            await asyncio.sleep(least_s)
            await self._wakes_up(most_s - least_s)
            self._napping = False
        self._rung = False

    def _is_behind(self) -> bool:
        self._unread = {place: at for place, at in self._unread.items() if at > self._positions.get(place, at)}
        return bool(self._unread)

    async def _wakes_up(self, within_s: float) -> None:
        """With every round: so by no more than a future and a timer."""
        if within_s <= 0 or self._rung:
            return
        loop = asyncio.get_running_loop()
        self._waking = loop.create_future()
        over = loop.call_later(within_s, self._ring)
        try:
            await self._waking
        finally:
            self._waking = None
            over.cancel()

    def _ring(self) -> None:
        self._rung = True
        if self._waking is not None and not self._waking.done():
            self._waking.set_result(None)

    async def _connect(self) -> Reader:
        reader = self._log.reader(_IDLE_S)
        await reader.start()
        reader.assign(self._positions)
        reader.pause(self._held)
        self._reader = reader
        return reader

    async def _drop_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.stop()


def _stretched(pause_s: float, batch: Batch) -> float:
    """Where much arrives, requests cost more than waiting does: fewer of them, for more records each."""
    stretch = min(_LONGEST_STRETCH, 1 + sum(map(len, batch.values())) // _MANY)
    return max(pause_s, min(stretch * pause_s, _LONGEST_STRETCHED_S))


def _gathering_s(batch: Batch) -> float:
    """Jobs that go on at the same time go on together: what one waits, all save in requests. A few don't wait."""
    jobs = len({record.key for records in batch.values() for record in records})
    return min(_LONGEST_GATHERING_S, jobs * _GATHERING_S) if jobs > _FEW else 0.0
