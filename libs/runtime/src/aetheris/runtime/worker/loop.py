"""The loop that every service runs: the partitions it is given, restored and then fed (docs/architecture.md)."""

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from aetheris.protocol.base.job_table import Resting
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.clock import Clock, SystemClock
from aetheris.runtime.keys.records import UNSIGNED, RecordKeys
from aetheris.runtime.log.interface import (
    Appender,
    Log,
    LogGap,
    LogUnreachable,
    Membership,
    MembershipLost,
    Place,
    Tenure,
    Written,
)
from aetheris.runtime.log.log_home import LogHomeTable
from aetheris.runtime.log.pump import Pump
from aetheris.runtime.log.table import Table
from aetheris.runtime.process.collector import Collector
from aetheris.runtime.process.health import Health
from aetheris.runtime.process.installation import worker_name
from aetheris.runtime.process.runtime import Runtime
from aetheris.runtime.process.settings import RuntimeSettings
from aetheris.runtime.process.spare_memory import SpareMemory
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.runtime.worker.checkpoints import UNSIGNED_PIECES, PieceSignatures
from aetheris.runtime.worker.handler import Cadence, HandlerFactory, Inputs, PartitionHandler
from aetheris.runtime.worker.partition import PartitionDependencies, WorkerPartition
from aetheris.runtime.worker.unsigned import HeardMessages

__all__ = ["Cadence", "HandlerFactory", "Inputs", "Pace", "PartitionHandler", "PartitionWorker"]

_log = structlog.get_logger(__name__)

READY_LAG = 100_000
"""Records behind, beyond which a worker says that it is not ready."""


@dataclass(frozen=True)
class Pace:
    """How often things happen, in seconds, and how much waits."""

    lazy_pause_s: float = 0.03
    commit_interval_s: float = 1.0
    drain_s: float = 5.0
    watchdog_s: float = 5.0
    queue_limit: int = 2_000

    @classmethod
    def of(cls, settings: RuntimeSettings) -> "Pace":
        """As the settings say."""
        return cls(settings.lazy_pause_s, settings.commit_interval_s, settings.drain_s)


class PartitionWorker:
    """Feeds one handler per partition that the group gives us; crash-only (see `run`)."""

    def __init__(
        self,
        log: Log,
        appender: Appender,
        inputs: Inputs,
        factory: HandlerFactory,
        *,
        group: str,
        member: str,
        tenure: Tenure | None = None,
        clock: Clock | None = None,
        pace: Pace | None = None,
        pieces: PieceSignatures = UNSIGNED_PIECES,
    ) -> None:
        self._log = log
        self._appender = appender
        self._inputs = inputs
        self._factory = factory
        self._clock = clock or SystemClock()
        self._pace = pace or Pace()
        self._pieces = pieces
        self._membership: Membership = log.membership(group, member, inputs.topics, tenure)
        self._tables = {topic: Table(log, topic, inputs.rows.get(topic, dict)()) for topic in inputs.tables}
        self._home: LogHomeTable | None = None
        self._pumps = {
            cadence: Pump(
                log,
                self._deliver,
                0.0 if cadence is Cadence.EAGER else self._pace.lazy_pause_s,
                own=cadence is Cadence.OWN,
            )
            for cadence in sorted({inputs.cadence(topic) for topic in inputs.topics})
        }
        self._acknowledged: dict[Place, int] = {}
        appender.report(self._written)
        self._partitions: dict[int, WorkerPartition] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._committed: dict[Place, tuple[int, str]] = {}
        self._joined = False
        self.dead_letters = 0
        """Records that were quarantined here since the start."""
        self._spare = SpareMemory()
        self._collector = Collector()
        self._crash: asyncio.Future[None] | None = None

    @classmethod
    def of(
        cls,
        parts: Runtime,
        inputs: Inputs,
        factory: HandlerFactory,
        *,
        group: str,
        tenure: Tenure | None = None,
        keys: RecordKeys = UNSIGNED,
    ) -> "PartitionWorker":
        """That of a service, under the name and at the pace of its settings; `keys`: of its checkpoints.

        Raises:
            SettingInvalid: AETHERIS_WORKER_ID is no name.
        """
        heard = HeardMessages(keys.messages, parts.metrics)
        made = cls(
            parts.log,
            parts.appender,
            inputs,
            factory,
            group=group,
            member=worker_name(parts.settings),
            tenure=tenure,
            clock=parts.clock,
            pace=Pace.of(parts.settings),
            pieces=PieceSignatures(heard.piece_counts, keys.piece),
        )
        if Topic.POLICIES in made.tables:
            made.keep_home(LogHomeTable(made.tables[Topic.POLICIES], heard.line_counts))
        return made

    @property
    def tables(self) -> Mapping[Topic, Table]:
        """The tables of `Inputs.tables`, loaded before the first handler is made."""
        return self._tables

    def keep_home(self, home: LogHomeTable) -> None:
        """Read nothing of a log that is elsewhere than this says; before `run`."""
        self._home = home

    @property
    def numbers(self) -> Collection[int]:
        """The partitions that the group gives us now."""
        return tuple(self._partitions)

    async def run(self, stop: asyncio.Event) -> None:
        """Join, restore, feed, until `stop` is set; then drain, commit and leave.

        Raises:
            Exception: whatever escaped a handler, or LogGap: the process must end, and restore from the log.
            LogMoved: the log is on other brokers.
        """
        self._crash = asyncio.get_running_loop().create_future()
        await asyncio.gather(*(table.load() for table in self._tables.values()))
        if self._home is not None:
            await self._home.check(self._log)
        await self._membership.start(self._assigned, self._revoked)
        background = [self._watched(part) for part in self._parts()]
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({stopping, self._crash}, return_when=asyncio.FIRST_COMPLETED)
            if self._crash.done():
                if isinstance(self._crash.exception(), LogGap):
                    await self._tell_how_far()
                await self._abandon()
            await self._membership.stop(self._pace.drain_s)
        finally:
            stopping.cancel()
            await _cancelled([stopping, *background, *self._tasks.values()])
        if self._crash.done():
            self._crash.result()

    def wake(self, awake_s: float = 0.0) -> None:
        """Read now what is read in pauses, and without pauses for so long."""
        for cadence, pump in self._pumps.items():
            if cadence is not Cadence.EAGER:
                pump.wake(awake_s)

    def catch_up(self) -> None:
        """Read the authority at once, up to what this process has appended."""
        self._pumps[self._inputs.authority_cadence].catch_up()

    def taken(self, partition: int) -> int:
        """The last offset of the authority that this process has filled itself, unless that is lost; -1: none."""
        return self._partitions[partition].own_end - 1 if partition in self._partitions else -1

    def call_at(self, partition: int, due_s: float) -> None:
        """Call the handler's `tick` when the clock's monotonic() reaches `due_s`; the earliest call wins."""
        if partition in self._partitions:
            self._partitions[partition].call_at(due_s)

    def quarantine(self, record: Record, reason: str) -> None:
        """Put what could not be decoded into its DLQ (where this service does that); the partition goes on."""
        if record.partition in self._partitions:
            self.dead_letters += self._partitions[record.partition].quarantine(record, reason)

    def show(self, health: Health, metrics: Metrics) -> None:
        """Let them say whether it is ready, how far behind it is, and how much it has quarantined."""
        health.add("worker", self.unready)
        health.report("lag", lambda: self.lag)
        metrics.watch(Metric.LAG, lambda: self.lag)
        metrics.watch(Metric.DEAD_LETTERS, lambda: self.dead_letters, grows=True)
        metrics.watch(Metric.JOBS_AT_REST, lambda: self.resting.jobs)
        metrics.watch(Metric.PACKED, lambda: self.resting.packed)

    def unready(self) -> str | None:
        """Why this worker isn't ready; None when it has joined, has restored, and is not far behind."""
        loading = [reason for table in self._tables.values() if (reason := table.unready()) is not None]
        if loading:
            return "; ".join(loading)
        if not self._joined:
            return "has not joined its group yet"
        restoring = sorted(number for number, one in self._partitions.items() if not one.restored)
        if restoring:
            return f"restoring partitions {restoring}"
        return f"{self.lag} records behind" if self.lag > READY_LAG else None

    @property
    def lag(self) -> int:
        """Records of the log that were not delivered here yet, as of the last look, some seconds ago."""
        return sum(pump.lag for pump in self._pumps.values())

    @property
    def resting(self) -> Resting:
        """The jobs that are packed here, in all partitions."""
        found = [one.resting for one in list(self._partitions.values())]
        return Resting(sum(one.jobs for one in found), sum(one.packed for one in found))

    def _parts(self) -> list[Coroutine[Any, Any, None]]:
        pumps = [pump.run() for pump in self._pumps.values()]
        tables = [table.run() for table in self._tables.values()]
        return [*pumps, *tables, self._membership.keep(), self._commit_regularly(), self._watch_silence()]

    def _watched(self, part: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(part)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self._crash is not None and not self._crash.done():
            self._crash.set_exception(error)

    async def _assigned(self, numbers: frozenset[int]) -> None:
        self._joined = True
        _log.info("assigned", partitions=sorted(numbers))
        for number in numbers - self._partitions.keys():
            self._partitions[number] = WorkerPartition(number, self._factory(number), self._surroundings())
            self._tasks[number] = self._watched(self._partitions[number].run())

    async def _revoked(self, numbers: frozenset[int]) -> None:
        _log.info("revoked", partitions=sorted(numbers))
        ours = [number for number in numbers if number in self._partitions]
        gone = [place for number in ours for place in self._partitions[number].places]
        for pump in self._pumps.values():
            pump.remove(gone)
        await asyncio.gather(*(self._retire(number) for number in ours))
        await self._commit([self._partitions[number] for number in ours])
        for number in ours:
            for place in self._partitions.pop(number).places:
                self._committed.pop(place, None)  # others commit there now

    async def _retire(self, number: int) -> None:
        """Let a partition finish, within the drain deadline; what is late is cut off and restored elsewhere."""
        partition, task = self._partitions[number], self._tasks.pop(number)
        try:
            async with asyncio.timeout(self._pace.drain_s):
                await partition.close()
                await asyncio.wait({task})
                await partition.drain()
        except TimeoutError:
            _log.warning("not drained in time", partition=number)
        await _cancelled([task])

    async def _tell_how_far(self) -> None:
        """Before a log that went backwards ends this process: so that the next one knows it for no other than it is."""
        partitions = list(self._partitions.values())
        for partition in partitions:
            partition.refresh_offers()
        await self._commit(partitions)

    async def _abandon(self) -> None:
        """A crash: nothing is drained, nothing committed."""
        tasks = list(self._tasks.values())
        self._partitions.clear()
        self._tasks.clear()
        await _cancelled(tasks)

    async def _commit_regularly(self) -> None:
        while True:
            await self._clock.sleep(self._pace.commit_interval_s)
            partitions = list(self._partitions.values())
            for partition in partitions:
                partition.refresh_offers()
            self._spare.look(self.resting.jobs)
            self._collector.look()
            await self._commit(partitions)

    async def _commit(self, partitions: Sequence[WorkerPartition]) -> None:
        offers = {place: (at, one.notes.get(place, "")) for one in partitions for place, at in one.offers.items()}
        changed = {place: offer for place, offer in offers.items() if self._committed.get(place) != offer}
        if not changed:
            return
        try:
            await self._membership.commit(
                {place: at for place, (at, _) in changed.items()},
                self._pace.drain_s,
                notes={place: note for place, (_, note) in changed.items()},
            )
        except (MembershipLost, LogUnreachable) as error:
            _log.warning("offsets not committed", error=str(error))
        else:
            self._committed.update(changed)

    async def _watch_silence(self) -> None:
        while True:
            await self._clock.sleep(self._pace.watchdog_s)
            for pump in self._pumps.values():
                await pump.check_silence()

    def _deliver(self, place: Place, records: list[Record]) -> None:
        partition = self._partitions.get(place[1])
        if partition is not None:
            partition.take(place, records)

    def _written(self, written: Written) -> None:
        """What this process has appended counts as read, and a partition is not restored without it.

        A place's come in their order: where one lies below another, that and what lay behind it are gone.
        """
        self._acknowledged[written.place] = written.following
        self._pumps[self._inputs.authority_cadence].written(written)

    def _surroundings(self) -> PartitionDependencies:
        return PartitionDependencies(
            log=self._log,
            appender=self._appender,
            membership=self._membership,
            inputs=self._inputs,
            clock=self._clock,
            offer_interval_s=self._pace.commit_interval_s,
            queue_limit=self._pace.queue_limit,
            acknowledged=lambda place: self._acknowledged.get(place, 0),
            feed=self._feed,
            hold=self._hold,
            release=self._release,
            pieces=self._pieces,
        )

    def _feed(self, positions: Mapping[Place, int]) -> None:
        for cadence, pump in self._pumps.items():
            pump.add({place: at for place, at in positions.items() if self._inputs.cadence(place[0]) is cadence})

    def _hold(self, places: Sequence[Place]) -> None:
        for pump in self._pumps.values():
            pump.hold(places)

    def _release(self, places: Sequence[Place]) -> None:
        for pump in self._pumps.values():
            pump.release(places)


async def _cancelled(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
