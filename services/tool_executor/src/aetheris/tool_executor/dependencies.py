"""What the partitions of one executor share."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from typing import Any

from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.revocations import NONE_REVOKED, Revocations
from aetheris.protocol.messages.registry_lines import DEFAULT_POOL
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.runtime.log.interface import Writer
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.process.crash import CrashPoints
from aetheris.runtime.process.withheld import Withheld
from aetheris.runtime.redis.wake_up import WakeUp
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.tool_executor.core.tries import Worker
from aetheris.tool_executor.core.unread_tries import UnreadTries
from aetheris.tool_executor.heartbeat import Heartbeat
from aetheris.tool_executor.identity import exit_at_once
from aetheris.tool_executor.outdated_grants import OutdatedGrants
from aetheris.tool_executor.performer import Performer, Scribe
from aetheris.tool_executor.slots import Slots
from aetheris.tool_executor.tool_calls import Calls
from aetheris.tool_executor.workflows import Workflows

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Starts a task that outlives its partition: a running tool isn't cancelled by a rebalance."""


@dataclass(frozen=True)
class ExecutorDependencies:
    """What the partitions of one executor share."""

    worker: Worker
    appender: Writer
    withheld: Withheld
    calls: Calls
    performer: Performer
    scribe: Scribe
    metrics: Metrics
    slots: Slots
    outdated: OutdatedGrants
    unread_tries: UnreadTries
    heartbeat: Heartbeat
    crash: CrashPoints
    wake_up: WakeUp
    freezes: OrderTable[FreezeOrders]
    policies: OrderTable[PolicyActivations]
    rules: OrderTable[RulesOrders]
    spawn: Spawn
    quarantine: Callable[[Record, str], None]
    wake: Callable[[], None]
    """Reads the authority at once."""
    installation: Collection[str] = ()
    """Key ids of the roots whose jobs count."""
    revocations: Revocations = NONE_REVOKED
    """Keys of services that count no more."""
    stand_down: Callable[[str], None] = exit_at_once
    """Ends this process: the log says that its incarnation has ended."""
    workflows: Workflows = field(default_factory=Workflows)
    """Those whose bodies run here."""
    pool: str = DEFAULT_POOL
    """Which executors it is one of: what is granted to others is passed over."""
