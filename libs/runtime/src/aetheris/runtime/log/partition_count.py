"""How many partitions jobs may be created in: as many as all topics have that may be given more (docs/growing.md)."""

from collections.abc import Collection

import structlog

from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.interface import Log, LogUnreachable

_log = structlog.get_logger(__name__)

_LOOK_S = 5.0


class PartitionCount:
    """`now` never falls; at first it is what the installation began with."""

    def __init__(self, log: Log, topics: Collection[str], first: int, clock: Clock) -> None:
        self._log = log
        self._topics = topics
        self._clock = clock
        self.now = first

    async def look(self) -> None:
        """Ask the brokers; where they don't say it stays as it is."""
        try:
            count = min([await self._log.partitions(topic) for topic in self._topics])
        except LogUnreachable:
            return
        if count > self.now:
            _log.info("more partitions", count=count, before=self.now)
            self.now = count

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(_LOOK_S)
