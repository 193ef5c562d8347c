"""The ledger's composition root: everything is built here, in the order in which it depends on each other."""

import asyncio
import os
import random
from dataclasses import dataclass, replace
from typing import Any

from aetheris.ledger.core.live_jobs import DecisionContext
from aetheris.ledger.core.policy_in_force import PolicyInForce
from aetheris.ledger.duplicate_table import DuplicateTable
from aetheris.ledger.ended_workers import EndedWorkers
from aetheris.ledger.handlers import LedgerDependencies, LedgerHandler
from aetheris.ledger.placements import Placements
from aetheris.ledger.quarantines import ProcessQuarantines
from aetheris.ledger.releases import Releases
from aetheris.ledger.settings import LedgerSettings
from aetheris.ledger.stores import Stores
from aetheris.ledger.tool_registry import ToolRegistry
from aetheris.protocol.base.allowed_signers import AllowedSigners
from aetheris.protocol.base.measures import Histogram
from aetheris.protocol.base.sealed import REACH
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.planning.policy import Policy
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.blobs.archive import JobArchive
from aetheris.runtime.keys.records import UNSIGNED, RecordKeys
from aetheris.runtime.log.archive_lines import ArchiveLines
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.interface import Tenure
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.process.crash import crash_points
from aetheris.runtime.process.lifecycle import freeze_memory
from aetheris.runtime.process.names import living
from aetheris.runtime.process.record_keys import record_keys
from aetheris.runtime.process.runtime import Runtime, runtime
from aetheris.runtime.process.signers_file import load_signers
from aetheris.runtime.redis.effects import EffectStore
from aetheris.runtime.redis.leases import Leases
from aetheris.runtime.telemetry.metrics import Metric
from aetheris.runtime.worker.loop import Cadence, Inputs, PartitionWorker
from aetheris.runtime.worker.unsigned import HeardMessages

GROUP = "aetheris.ledger"

INPUTS = Inputs(
    commands={Topic.TOOLS_REQUESTS: Cadence.EAGER, Topic.JOBS_COMMANDS: Cadence.EAGER},
    tables=(
        Topic.WORKERS,
        Topic.TOOLS_REGISTRY,
        Topic.LEDGER_CONTENTS,
        Topic.FREEZES,
        Topic.POLICIES,
        Topic.JOBS_ARCHIVE,
    ),
    rows={Topic.JOBS_ARCHIVE: ArchiveLines},
    quarantines=frozenset({Topic.TOOLS_REQUESTS}),
    made_again=frozenset({Topic.TOOLS_REQUESTS}),
    reach=REACH,
    checkpoints=Topic.LEDGER_CHECKPOINTS,
)


async def serve(settings: LedgerSettings, policy: Policy, stop: asyncio.Event) -> None:
    """Adjudicate until `stop` is set.

    Raises:
        KeyUnusable, CertificateNotInForce: what signs its records can't be used.
        SignersFileInvalid: it can't be used, or a rule asks for signatures and there is none.
        WorkerIdTaken: another process lives under this name.
        Exception: whatever escaped; the next process restores from the log.
    """
    rules = Rules(policy, load_signers(settings.signers, policy.signed))
    keys = record_keys(settings, Party.LEDGER)
    async with runtime(settings, "ledger", stop) as parts, living(parts, GROUP, stop) as tenure:
        worker = ledger(parts, settings, rules, tenure, keys)
        worker.show(parts.health, parts.metrics)
        freeze_memory(only_facts=True)
        await worker.run(stop)


@dataclass(frozen=True, slots=True)
class Rules:
    """What is allowed, and whose signatures count."""

    policy: Policy
    signers: AllowedSigners


def ledger(
    parts: Runtime, settings: LedgerSettings, rules: Rules, tenure: Tenure, keys: RecordKeys = UNSIGNED
) -> PartitionWorker:
    """The worker with a ledger in each of its partitions."""
    stores = Stores(Leases(parts.redis), EffectStore(parts.redis, settings.effect_ttl_s), parts.traffic, parts.clock)
    quarantines = ProcessQuarantines(parts.redis, parts.metrics, parts.clock)
    parts.health.report("quarantined", quarantines.reported)
    in_force = PolicyInForce(rules.signers)
    parts.health.report("policy", lambda: _policy_report(rules.policy, in_force))
    edges: list[LedgerDependencies] = []
    queue_s = Histogram()
    parts.metrics.watch_histograms(Metric.QUEUE_DURATION, queue_s)
    heard = HeardMessages(keys.messages, parts.metrics)
    crash = crash_points(os.environ, settings.data)
    context: list[DecisionContext] = []

    def handler(partition: int) -> LedgerHandler:
        if not edges:  # the tables are loaded by now
            tools = ToolRegistry(worker.tables[Topic.TOOLS_REGISTRY])
            duplicates = DuplicateTable(worker.tables[Topic.LEDGER_CONTENTS])
            context.append(
                DecisionContext(
                    rules.policy,
                    settings.limits(),
                    fresh_id,
                    random.random,
                    tools.registered,
                    duplicates.index,
                    rules.signers,
                    freezes.orders,
                    keys.revocations,
                    in_force,
                    placement=placements.placement,
                )
            )
            edges.append(
                LedgerDependencies(
                    parts.withheld,
                    stores,
                    workers,
                    placements,
                    duplicates,
                    quarantines,
                    Releases(worker.tables[Topic.TOOLS_REGISTRY], heard.line_counts),
                    freezes,
                    policies,
                    ordered_rules,
                    parts.telemetry,
                    parts.metrics,
                    parts.clock,
                    worker,
                    queue_s,
                    keys,
                    crash,
                )
            )
        archive = JobArchive(parts.blobs, worker.tables[Topic.JOBS_ARCHIVE].get)
        return LedgerHandler(partition, context[0], edges[0], JobLogReader(parts.log, readers=1, archive=archive))

    inputs = replace(INPUTS, checkpoint_every=settings.checkpoint_every)
    worker = PartitionWorker.of(parts, inputs, handler, group=GROUP, tenure=tenure, keys=keys)
    workers = EndedWorkers(worker.tables[Topic.WORKERS], heard.line_counts)
    placements = Placements(worker.tables[Topic.TOOLS_REGISTRY], workers)
    freezes = OrderTable(worker.tables[Topic.FREEZES], FreezeOrders(), heard.line_counts)
    heard.follow(worker.tables[Topic.FREEZES], worker.tables[Topic.POLICIES])
    parts.health.report("other_roots", heard.other_roots)
    policies = OrderTable(worker.tables[Topic.POLICIES], PolicyActivations(), heard.line_counts)
    ordered_rules = OrderTable(worker.tables[Topic.POLICIES], RulesOrders(), heard.line_counts)
    return worker


def _policy_report(configured: Policy, in_force: PolicyInForce) -> dict[str, Any]:
    """Which policy decides; and why nothing is decided, where it can't be used."""
    policy = in_force.activated or configured
    found: dict[str, Any] = {"activation": in_force.number, "policy_hash": policy.hash}
    if in_force.missing:
        found["missing"] = max(in_force.missing.values())
    return found | ({"unusable": in_force.unusable} if in_force.unusable is not None else {})
