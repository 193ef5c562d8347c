"""The planner's composition root: everything is built here, in the order in which it depends on each other."""

import asyncio

from aetheris.planner.handlers import PlannerHandler, lines_of
from aetheris.planner.settings import PlannerSettings
from aetheris.protocol.topics import Topic
from aetheris.streams.clock import Clock
from aetheris.streams.lifecycle import freeze_memory
from aetheris.streams.log import Appender, Log
from aetheris.streams.runtime import runtime
from aetheris.streams.telemetry import Telemetry
from aetheris.streams.worker import Cadence, Inputs, Pace, PartitionWorker

GROUP = "aetheris.planner"

INPUTS = Inputs(
    commands={Topic.JOBS_COMMANDS: Cadence.EAGER},
    tables=(Topic.JOBS_INDEX,),
    quarantines=frozenset({Topic.JOBS_COMMANDS}),
)


async def serve(settings: PlannerSettings, stop: asyncio.Event) -> None:
    """Plan until `stop` is set.

    Raises:
        Exception: whatever escaped; the next process restores from the log.
    """
    async with runtime(settings, "planner") as parts:
        worker = planner(parts.log, parts.appender, parts.telemetry, parts.clock, settings)
        parts.health.add("worker", worker.unready)
        freeze_memory()
        await worker.run(stop)


def planner(
    log: Log, appender: Appender, telemetry: Telemetry, clock: Clock, settings: PlannerSettings
) -> PartitionWorker:
    """The worker with a planner in each of its partitions."""

    def handler(_partition: int) -> PlannerHandler:
        indexed = lines_of(worker.tables[Topic.JOBS_INDEX])
        return PlannerHandler(appender, indexed, worker.quarantine, telemetry, clock, runs=settings.runs)

    worker = PartitionWorker(
        log,
        appender,
        INPUTS,
        handler,
        group=GROUP,
        member=settings.worker_id,
        clock=clock,
        pace=Pace.of(settings),
    )
    return worker
