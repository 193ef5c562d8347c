"""Whether jobs.events still has what each service had read of it: who finds that it has not ends, and tells nobody.

A service notes how far it had read in its group (aetheris.runtime.worker.reached). The gateway, which goes on, holds
these notes against the log.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator

import structlog

from aetheris.gateway.core import system_health as core
from aetheris.protocol.api_operations import CutPartition
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.interface import GAP_BELIEVED_S, Log, LogGap, LogUnreachable, Place
from aetheris.runtime.worker import reached
from aetheris.runtime.worker.reached import LastRead

LOOK_EVERY_S = 30.0
ANSWER_S = 10.0
"""For what the brokers say of one partition."""

_log = structlog.get_logger(__name__)
_Read = tuple[str, int]
"""A service, or a pool of executors, and a partition of jobs.events."""


class LogWatch:
    """Looks twice a minute, and once more where something is amiss: a leader that was deposed tells an old end."""

    def __init__(self, log: Log, pools: Callable[[], Iterable[str]], clock: Clock) -> None:
        self._log = log
        self._pools = pools
        self._clock = clock
        self._stood: dict[_Read, LastRead] = {}
        """What was noted at the last look."""
        self._doubted: dict[_Read, float] = {}
        """Since when the log lacks what is noted there."""
        self._why: dict[_Read, str] = {}

    @property
    def cut(self) -> tuple[CutPartition, ...]:
        """What is known to lack what a service had read, in the order of their names."""
        return tuple(
            CutPartition(service=service, topic=Topic.JOBS_EVENTS, partition=number, why=f"the log {why}")
            for (service, number), why in sorted(self._why.items())
        )

    @property
    def partitions(self) -> int:
        """How many partitions of jobs.events that are."""
        return len({number for _, number in self._why})

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(GAP_BELIEVED_S if self._doubted.keys() - self._why.keys() else LOOK_EVERY_S)

    async def look(self) -> None:
        """Hold what each service has noted against the log; what can't be known now stays as it was."""
        try:
            async with asyncio.timeout(ANSWER_S):
                numbers = range(await self._log.partitions(Topic.JOBS_EVENTS))
        except (LogUnreachable, TimeoutError):
            return  # readiness says so
        places = [(str(Topic.JOBS_EVENTS), number) for number in numbers]
        for group in self._groups():
            try:
                async with asyncio.timeout(ANSWER_S):
                    noted = await self._log.noted_by(group.name, places)
            except (LogUnreachable, TimeoutError):
                continue
            for place in places:
                await self._hold(group.service, place, reached.noted(noted.get(place, "")))

    def _groups(self) -> Iterator[core.Group]:
        """Those that fold jobs.events."""
        return (one for one in core.groups(self._pools()) if Topic.JOBS_EVENTS in one.topics)

    async def _hold(self, service: str, place: Place, before: LastRead | None) -> None:
        read = (service, place[1])
        stands = self._stood.get(read, before) == before
        if before is None:
            self._stood.pop(read, None)
        else:
            self._stood[read] = before
        if before is None or not stands:  # it reads on, so it looks at this by itself
            self._forget(read)
            return
        try:
            async with asyncio.timeout(ANSWER_S):
                why = await reached.why_cut(self._log, place, before)
        except (LogUnreachable, LogGap, TimeoutError):
            return
        if why is None:
            self._forget(read)
        elif self._clock.monotonic() - self._doubted.setdefault(read, self._clock.monotonic()) >= GAP_BELIEVED_S:
            if read not in self._why:
                _log.error("the log is cut", service_of=service, topic=place[0], partition=place[1], why=why)
            self._why[read] = why

    def _forget(self, read: _Read) -> None:
        self._doubted.pop(read, None)
        self._why.pop(read, None)
