"""A compacted topic as a table in memory: loaded to its end, then kept up to date."""

import asyncio
from collections.abc import Callable, Iterator

from aetheris.protocol.base.records import Record
from aetheris.runtime.log.interface import Log, Place
from aetheris.runtime.log.pump import Pump
from aetheris.runtime.log.replay import replay

OnChange = Callable[[str, bytes | None], None]
"""A key, and its new value; None where it was deleted."""

_PAUSE_S = 0.1


class Table:
    """The last value of every key; empty values are tombstones."""

    def __init__(self, log: Log, topic: str) -> None:
        self.topic = topic
        self._log = log
        self._pump = Pump(log, self._take, _PAUSE_S)
        self._rows: dict[str, bytes] = {}
        self.loaded = False
        self._listeners: list[OnChange] = []

    async def load(self, deadline_s: float = 60.0) -> None:
        """Read to the end that the topic has now.

        Raises:
            LogUnreachable: no answer from the brokers.
            TimeoutError: not read within the deadline.
        """
        async with asyncio.timeout(deadline_s):
            places = [(self.topic, number) for number in range(await self._log.partitions(self.topic))]
            begins = await self._log.beginning_offsets(places)
            ends = await self._log.end_offsets(places)
            await asyncio.gather(*(self._load(place, begins[place], ends[place]) for place in places))
        self.loaded = True

    async def run(self) -> None:
        """Keep the table up to date, until cancelled; call `load` first."""
        await self._pump.run()

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

    async def _load(self, place: Place, begin: int, end: int) -> None:
        position = max(begin, end)
        async for records in replay(self._log, place, begin, end):
            self._take(place, records)
            position = max(position, records[-1].offset + 1)
        self._pump.add({place: position})

    def _take(self, _place: Place, records: list[Record]) -> None:
        for record in records:
            self._set((record.key or b"").decode(errors="replace"), record.value)

    def _set(self, key: str, value: bytes) -> None:
        if value:
            self._rows[key] = value
        else:
            self._rows.pop(key, None)
        for listener in self._listeners:
            listener(key, value or None)
