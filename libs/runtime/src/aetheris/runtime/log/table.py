"""A compacted topic as a table in memory: loaded to its end, then kept up to date."""

import asyncio
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress

import structlog

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.log.interface import Log, LogUnreachable, Place
from aetheris.runtime.log.pump import Pump
from aetheris.runtime.log.replay import replay

OnChange = Callable[[str, bytes | None], None]
"""A key, and its new value; None where it was deleted."""

_log = structlog.get_logger(__name__)

_PAUSE_S = 0.1
_LOOK_S = 5.0
"""Between two lines of the log that say how far loading has come; later, between two looks for a silent reader."""
STALLED_S = 60.0
"""Loading may take as long as it takes; without a single record for so long, something is wrong."""


_ORDERS = frozenset({Topic.FREEZES, Topic.POLICIES})


class OrdersGone(StartRefused):
    """Records of a topic of orders were deleted: nobody can tell any more what is frozen, or which policy decides."""

    code = "orders_gone"


class Table:
    """The last value of every key; empty values are tombstones."""

    def __init__(self, log: Log, topic: str, rows: MutableMapping[str, bytes] | None = None) -> None:
        self.topic = topic
        self._log = log
        self._pump = Pump(log, self._take, _PAUSE_S)
        self._rows: MutableMapping[str, bytes] = {} if rows is None else rows
        self._left: dict[Place, int] = {}
        """Records that are still to be loaded."""
        self._whole = 0
        self.loaded = False
        self.partitions = 0
        """Of the topic, once it is loaded."""
        self._listeners: list[OnChange] = []
        self._awaiting: list[Callable[[], None]] = []
        self._read: dict[Place, int] = {}
        """The next offset of each partition."""
        self._news = asyncio.Event()

    async def load(self, stalled_s: float = STALLED_S) -> None:
        """Read to the end that the topic has now, however long that takes.

        Raises:
            LogUnreachable: no answer from the brokers for `stalled_s`.
            OrdersGone: it is of orders, and has lost some.
            TimeoutError: nothing was read for `stalled_s`.
        """
        self.partitions = await self._log.partitions(self.topic)
        places = [(self.topic, number) for number in range(self.partitions)]
        begins = await self._log.beginning_offsets(places, stalled_s)
        if self.topic in _ORDERS and any(begins.values()):
            raise OrdersGone(f"{self.topic}: the brokers have deleted orders, which are to be kept for ever")
        ends = await self._log.end_offsets(places, stalled_s)
        self._left = {place: ends[place] - begins[place] for place in places}
        self._whole = sum(self._left.values())
        loading = asyncio.gather(*(self._load(place, begins[place], ends[place]) for place in places))
        watching = asyncio.create_task(self._watch(stalled_s))
        try:
            await asyncio.wait({loading, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not loading.done():
                watching.result()
            loading.result()
        finally:
            loading.cancel()
            watching.cancel()
            await asyncio.gather(loading, watching, return_exceptions=True)
        self.loaded = True
        for listener in self._awaiting:
            listener()

    def unready(self) -> str | None:
        """How far loading has come; None once it is loaded."""
        if self.loaded:
            return None
        left = sum(self._left.values())
        return f"loading {self.topic}: {self._whole - left} of {self._whole} records"

    async def _watch(self, stalled_s: float) -> None:
        """Say how it goes on; raise where it doesn't."""
        clock = asyncio.get_running_loop().time
        before, since_s = -1, clock()
        while True:
            await asyncio.sleep(min(_LOOK_S, stalled_s))
            left = sum(self._left.values())
            if left != before:
                before, since_s = left, clock()
                _log.info("loading", topic=self.topic, records=self._whole - left, of=self._whole)
            elif clock() - since_s >= stalled_s:
                raise TimeoutError(f"{self.topic}: nothing was read for {stalled_s:.0f} s")

    async def run(self) -> None:
        """Keep the table up to date, until cancelled; a reader that falls silent is renewed. Call `load` first.

        Raises:
            LogGap: acknowledged records are gone.
        """
        pumping = asyncio.create_task(self._pump.run())
        try:
            while not pumping.done():
                done, _ = await asyncio.wait({pumping}, timeout=_LOOK_S)
                if not done:
                    await self._pump.check_silence()
                    await self._grow()
        finally:
            pumping.cancel()
            await asyncio.wait({pumping})
        pumping.result()

    async def _grow(self) -> None:
        """Read the partitions that the topic was given since."""
        with suppress(LogUnreachable):
            count = await self._log.partitions(self.topic)
            self._pump.add({(self.topic, number): 0 for number in range(self.partitions, count)})
            self.partitions = max(self.partitions, count)

    async def caught_up(self) -> None:
        """Everything that the topic has now is in the table; call `run` beside it.

        Raises:
            LogUnreachable: no answer from the brokers.
        """
        ends = await self._log.end_offsets([(self.topic, number) for number in range(self.partitions)])
        while any(self._read.get(place, 0) < end for place, end in ends.items()):
            await self._news.wait()

    def get(self, key: str) -> bytes | None:
        """The value of a key."""
        return self._rows.get(key)

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Every key and its value."""
        return iter(tuple(self._rows.items()))

    def __len__(self) -> int:
        return len(self._rows)

    def on_change(self, listener: OnChange) -> None:
        """Call `listener` for every record from now on, in log order per key."""
        self._listeners.append(listener)

    def on_loaded(self, listener: Callable[[], None]) -> None:
        """Call `listener` once it is loaded."""
        self._awaiting.append(listener)

    async def _load(self, place: Place, begin: int, end: int) -> None:
        position = begin
        async for records in replay(self._log, place, begin, end):
            self._take(place, records)
            position = max(position, records[-1].offset + 1)
            self._left[place] = max(0, end - position)
            await asyncio.sleep(0)
        self._left[place] = 0
        self._come_to(place, max(position, end))
        self._pump.add({place: max(position, end)})

    def _take(self, place: Place, records: list[Record]) -> None:
        for record in records:
            self._set((record.key or b"").decode(errors="replace"), record.value)
        if records:
            self._come_to(place, records[-1].offset + 1)

    def _come_to(self, place: Place, position: int) -> None:
        self._read[place] = position
        self._news.set()
        self._news = asyncio.Event()

    def _set(self, key: str, value: bytes) -> None:
        if value:
            self._rows[key] = value
        else:
            self._rows.pop(key, None)
        for listener in self._listeners:
            listener(key, value or None)
