"""The ledger's composition root: everything is built here, in the order in which it depends on each other."""

import asyncio
import random

from aetheris.ledger.handlers import Edge, LedgerHandler
from aetheris.ledger.memory import Terms
from aetheris.ledger.policy import Policy
from aetheris.ledger.settings import LedgerSettings
from aetheris.ledger.stores import Stores
from aetheris.ledger.workers import Workers
from aetheris.protocol.topics import Topic
from aetheris.streams.effects import EffectStore
from aetheris.streams.ids import fresh_id
from aetheris.streams.leases import Leases
from aetheris.streams.lifecycle import freeze_memory
from aetheris.streams.runtime import Runtime, runtime
from aetheris.streams.worker import Cadence, Inputs, Pace, PartitionWorker

GROUP = "aetheris.ledger"

INPUTS = Inputs(
    commands={Topic.TOOLS_REQUESTS: Cadence.EAGER, Topic.JOBS_COMMANDS: Cadence.EAGER},
    tables=(Topic.WORKERS,),
    quarantines=frozenset({Topic.TOOLS_REQUESTS}),
)


async def serve(settings: LedgerSettings, policy: Policy, stop: asyncio.Event) -> None:
    """Adjudicate until `stop` is set.

    Raises:
        Exception: whatever escaped; the next process restores from the log.
    """
    async with runtime(settings, "ledger") as parts:
        worker = ledger(parts, settings, policy)
        parts.health.add("worker", worker.unready)
        parts.health.tell("lag", lambda: worker.lag)
        freeze_memory()
        await worker.run(stop)


def ledger(parts: Runtime, settings: LedgerSettings, policy: Policy) -> PartitionWorker:
    """The worker with a ledger in each of its partitions."""
    terms = Terms(policy, settings.limits(), fresh_id, random.random)
    stores = Stores(Leases(parts.redis), EffectStore(parts.redis, settings.effect_ttl_s), parts.blobs, parts.clock)
    edges: list[Edge] = []

    def handler(partition: int) -> LedgerHandler:
        if not edges:  # the tables are loaded by now
            workers = Workers(worker.tables[Topic.WORKERS])
            edges.append(Edge(parts.appender, stores, workers, parts.telemetry, parts.clock, worker))
        return LedgerHandler(partition, terms, edges[0])

    worker = PartitionWorker(
        parts.log,
        parts.appender,
        INPUTS,
        handler,
        group=GROUP,
        member=settings.worker_id,
        clock=parts.clock,
        pace=Pace.of(settings),
    )
    return worker
