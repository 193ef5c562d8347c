"""The planner's composition root: everything is built here, in the order in which it depends on each other."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from aetheris.planner.core.behind import Behinds
from aetheris.planner.core.placements import JobPlaces
from aetheris.planner.handlers import PlannerHandler
from aetheris.planner.lookup import Jobs
from aetheris.planner.settings import PlannerSettings
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages import event_base
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.runtime.blobs.archive import JobArchive
from aetheris.runtime.kafka.topics import GROWING
from aetheris.runtime.keys.records import UNSIGNED, RecordKeys
from aetheris.runtime.log.archive_lines import ArchiveLines
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.interface import Tenure
from aetheris.runtime.log.job_lines import JobLines, behind_of, line_of
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.log.partition_count import PartitionCount
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.replay import replay
from aetheris.runtime.process.crash import crash_points
from aetheris.runtime.process.lifecycle import freeze_memory
from aetheris.runtime.process.names import living
from aetheris.runtime.process.record_keys import record_keys
from aetheris.runtime.process.runtime import Runtime, runtime
from aetheris.runtime.redis.wake_up import AWAKE_S
from aetheris.runtime.telemetry.metrics import Metric
from aetheris.runtime.worker.loop import Cadence, Inputs, PartitionWorker
from aetheris.runtime.worker.unsigned import HeardMessages

GROUP = "aetheris.planner"

INPUTS = Inputs(
    commands={Topic.JOBS_COMMANDS: Cadence.EAGER},
    tables=(Topic.JOBS_INDEX, Topic.POLICIES, Topic.JOBS_ARCHIVE),
    rows={Topic.JOBS_INDEX: JobLines, Topic.JOBS_ARCHIVE: ArchiveLines},
    quarantines=frozenset({Topic.JOBS_COMMANDS, Topic.JOBS_EVENTS}),
    checkpoints=Topic.PLANNER_CHECKPOINTS,
)


async def serve(settings: PlannerSettings, stop: asyncio.Event) -> None:
    """Plan until `stop` is set.

    Raises:
        KeyUnusable, CertificateNotInForce: what signs its records can't be used.
        WorkerIdTaken: another process lives under this name.
        Exception: whatever escaped; the next process restores from the log.
    """
    keys = record_keys(settings, Party.PLANNER)
    async with runtime(settings, "planner", stop) as parts, living(parts, GROUP, stop) as tenure:

        def archived(job_id: str) -> bytes | None:
            return worker.tables[Topic.JOBS_ARCHIVE].get(job_id)

        history = JobLogReader(parts.log, archive=JobArchive(parts.blobs, archived))
        count = PartitionCount(parts.log, GROWING, settings.partitions, parts.clock)
        await count.look()
        worker = planner(parts, settings, history, tenure, keys, count=count)
        worker.show(parts.health, parts.metrics)
        freeze_memory(only_facts=True)
        listening = asyncio.create_task(parts.wake_up.listen("planner", partial(worker.wake, AWAKE_S)))
        counting = asyncio.create_task(count.run())
        try:
            await worker.run(stop)
        finally:
            listening.cancel()
            counting.cancel()
            await history.close()


def planner(
    parts: Runtime,
    settings: PlannerSettings,
    history: JobLogReader,
    tenure: Tenure | None = None,
    keys: RecordKeys = UNSIGNED,
    *,
    count: PartitionCount | None = None,
) -> PartitionWorker:
    """The worker with a planner in each of its partitions; `history`: where jobs that are continued are read.

    `count`: over how many new jobs are spread, if over more than the installation began with.
    """
    handlers: dict[int, PlannerHandler] = {}
    first = settings.partitions
    named = partial(partition_of, partitions=first)

    def home(job_id: str) -> int:
        return partition_of(job_id, first if count is None else count.now)

    crash = crash_points(os.environ, settings.data)

    def handler(partition: int) -> PlannerHandler:
        rows = worker.tables[Topic.JOBS_INDEX].get
        line = partial(line_of, rows)
        handlers[partition] = PlannerHandler(
            appender=parts.appender,
            withheld=parts.withheld,
            indexed=line,
            behind=Behinds(partial(behind_of, rows)),
            quarantine=worker.quarantine,
            traffic=parts.traffic,
            telemetry=parts.telemetry,
            metrics=parts.metrics,
            clock=parts.clock,
            look_up=Jobs(line, history, first, parts.clock).look_up,
            places=JobPlaces(named, home),
            keys=keys,
            partition=partition,
            taken=partial(worker.taken, partition),
            again=partial(replay, parts.log, (str(Topic.JOBS_COMMANDS), partition)),
            crash=crash,
            runs=settings.runs,
            rules=rules,
            stuck_after_s=settings.stuck_after_s,
            jobs_in_flight=settings.jobs_in_flight,
            call_at=partial(worker.call_at, partition),
            catch_up=worker.catch_up,
            wake_up=partial(parts.wake_up.send, "gateway"),
        )
        return handlers[partition]

    parts.health.report("jobs_stuck", lambda: sum(handler.stuck for handler in list(handlers.values())))
    parts.health.report("rules", lambda: _rules_report(rules.orders, list(handlers.values())))
    parts.metrics.watch(Metric.STUCK_JOBS, lambda: sum(handler.stuck for handler in list(handlers.values())))
    parts.metrics.watch(Metric.UNREAD, lambda: sum(handler.unread for handler in list(handlers.values())))
    inputs = replace(INPUTS, checkpoint_every=settings.checkpoint_every)
    worker = PartitionWorker.of(parts, inputs, handler, group=GROUP, tenure=tenure, keys=keys)
    heard = HeardMessages(keys.messages, parts.metrics)
    rules = OrderTable(worker.tables[Topic.POLICIES], RulesOrders(), heard.line_counts)
    return worker


def _rules_report(orders: RulesOrders, handlers: Sequence[PlannerHandler]) -> dict[str, Any]:
    """Under which version of the rules jobs are created; and which one submissions wait for, where this is older."""
    found: dict[str, Any] = {"version": orders.version, "known": sorted(event_base.KNOWN_RULES)}
    waits = [version for handler in handlers if (version := handler.waits_for_upgrade) is not None]
    return found | ({"needs_upgrade": max(waits)} if waits else {})
