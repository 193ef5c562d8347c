"""How the system's parts stand, as Kafka says: who is there, what waits in topics, what lies among the dead letters."""

import asyncio
from collections.abc import Iterable

from aetheris.gateway.core import system_health as core
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.log_watch import LogWatch
from aetheris.gateway.registry import Registry
from aetheris.gateway.views import timestamp
from aetheris.gateway.workers import WorkerDirectory
from aetheris.protocol.api_operations import HealthView
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.interface import Log, LogUnreachable, Place

KEPT_S = 5.0
"""For so long an answer is given again: however many ask, the brokers are asked once."""


class SystemHealth:
    """Asked while somebody looks; nothing is asked while nobody does."""

    def __init__(
        self,
        log: Log,
        registry: Registry,
        workers: WorkerDirectory,
        *,
        log_watch: LogWatch,
        deadlines: Deadlines,
        clock: Clock,
    ):
        self._log = log
        self.log_watch = log_watch
        """Looks for itself, and goes on while nobody asks."""
        self._registry = registry
        self._workers = workers
        self._deadlines = deadlines
        self._clock = clock
        self._asking = asyncio.Lock()
        self._last: tuple[float, HealthView] | None = None

    async def view(self) -> HealthView:
        """How it stands; a part of which the brokers can say nothing now is named, and hides no other.

        Raises:
            Unavailable: no broker answers.
        """
        async with self._deadlines.deadline(), self._asking:
            if self._last is not None and self._clock.monotonic() - self._last[0] < KEPT_S:
                return self._last[1]
            found = await self._asked()
            self._last = self._clock.monotonic(), found
            return found

    async def _asked(self) -> HealthView:
        groups = core.groups(self._registry.pools())
        places = await self._places({topic for group in groups for topic in group.topics})
        dead = await self._places(dead_letters(topic) for topic in Topic)
        begins, ends, said = await asyncio.gather(
            self._log.beginning_offsets((*places, *dead)),
            self._log.end_offsets((*places, *dead)),
            asyncio.gather(
                *(self._said(group, [place for place in places if place[0] in group.topics]) for group in groups)
            ),
        )
        pairs = list(zip(groups, said, strict=True))
        read = {place: ends[place] for place in places}
        return HealthView(
            at=timestamp(self._clock.now()),
            services=tuple(core.service_health(group, one) for group, one in pairs),
            backlogs=tuple(line for group, one in pairs for line in core.backlogs(group, one, begins, read)),
            dead_letters=tuple(core.dead_letter_counts(begins, {place: ends[place] for place in dead})),
            executors=tuple(core.executors(self._workers.names(), self._registry.executors())),
            log_cut=self.log_watch.cut,
        )

    async def _places(self, topics: Iterable[str]) -> list[Place]:
        return [(topic, number) for topic in topics for number in range(await self._log.partitions(topic))]

    async def _said(self, group: core.Group, places: list[Place]) -> core.GroupSaid:
        try:
            async with asyncio.timeout(self._deadlines.request_s / 2):
                members = await self._log.attendants(group.name)
                committed = await self._log.committed_by(group.name, places) if places else {}
        except LogUnreachable as error:
            return core.GroupSaid(unknown=str(error))
        except TimeoutError:
            return core.GroupSaid(unknown=f"who is in {group.name} is not known: somebody joins, or has died")
        return core.GroupSaid(members, committed)
