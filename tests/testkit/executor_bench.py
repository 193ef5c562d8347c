"""The executor's edge without a broker: a partition fed by hand, and what it appends."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from aetheris.protocol.base.keys import idempotency_key
from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import RegistryEntry, ToolGrant
from aetheris.protocol.messages.envelope import Envelope, decode_event, draft
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.schemas import pin_of
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.blobs.store import FolderBlobs
from aetheris.runtime.blobs.traffic import BlobTraffic
from aetheris.runtime.log.interface import AppendRefused, RefusedGroup, Written
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.log.table import Table
from aetheris.runtime.process.crash import CrashPoints
from aetheris.runtime.process.withheld import Withheld
from aetheris.runtime.redis.client import Redis
from aetheris.runtime.redis.effects import EffectStore
from aetheris.runtime.redis.leases import Lease, Leases
from aetheris.runtime.redis.wake_up import WakeUp
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.runtime.telemetry.spans import RecordedSpan
from aetheris.runtime.telemetry.tracer import Telemetry
from aetheris.sdk import tool
from aetheris.sdk.loader import Toolbox
from aetheris.sdk.tools import AnyTool
from aetheris.testkit.memory import MemoryLog
from aetheris.tool_executor.core.tries import Worker
from aetheris.tool_executor.core.unread_tries import UnreadTries
from aetheris.tool_executor.dependencies import ExecutorDependencies
from aetheris.tool_executor.effect_writer import EffectWriter
from aetheris.tool_executor.handlers import ExecutorHandler
from aetheris.tool_executor.heartbeat import Heartbeat
from aetheris.tool_executor.hidden_calls import HiddenCalls
from aetheris.tool_executor.outdated_grants import OutdatedGrants
from aetheris.tool_executor.performer import Performer, Scribe
from aetheris.tool_executor.secret_store import Secrets
from aetheris.tool_executor.slots import Slots
from aetheris.tool_executor.tool_calls import Calls
from aetheris.tool_executor.workflows import Workflows
from tests.testkit.histories import JOB, created, graph, planned

NOWHERE = Redis("redis://127.0.0.1:9/0")
OTHER = "another tenant"
OTHERS = 6
"""More grants at work than a run rings among."""


@tool(effect_class="opaque", irreversible=False)
async def act() -> None:
    """Does nothing."""


@tool(effect_class="opaque", irreversible=False)
async def lose() -> None:
    """Nobody knows."""
    raise ConnectionResetError


class CountedWakeUps(WakeUp):
    """A bell that counts."""

    def __init__(self) -> None:
        super().__init__(NOWHERE)
        self.rung: list[str] = []

    def send(self, service: str) -> None:
        self.rung.append(service)


class RenewedLeases(Leases):
    """Which keys' leases were renewed."""

    def __init__(self) -> None:
        super().__init__(NOWHERE)
        self.keys: list[str] = []

    async def extend(self, leases: Sequence[Lease]) -> list[bool]:
        self.keys += [lease.idempotency_key for lease in leases]
        return [True] * len(leases)


class HandlerBench:
    """One handler, its log as a list, and its appender."""

    def __init__(
        self,
        folder: Path,
        sample: float = 0.0,
        store: EffectStore | None = None,
        *,
        tools: Sequence[AnyTool] = (act, lose),
        workflows: Workflows | None = None,
    ) -> None:
        self.spans: list[RecordedSpan] = []
        self.records: list[Record] = []
        self.tasks: set[asyncio.Task[None]] = set()
        clock, telemetry = SystemClock(), Telemetry("tool_executor", sample, self.spans.append)
        calls = Calls(Toolbox({one.key: one for one in tools}), clock, Secrets(()))
        scribe = Scribe(clock, telemetry)
        performer = Performer(
            calls=calls,
            hidden=HiddenCalls(None, BlobTraffic(FolderBlobs(folder), clock)),
            effects=EffectWriter(store or EffectStore(NOWHERE, 60), clock, 0.2, 60),
            blobs=FolderBlobs(folder),
            traffic=BlobTraffic(FolderBlobs(folder), clock),
            scribe=scribe,
            telemetry=telemetry,
            metrics=Metrics("tool_executor"),
            clock=clock,
            crash=CrashPoints(),
        )
        self.renewals = RenewedLeases()
        self.heartbeat = Heartbeat(self.renewals, 5, clock, 60)
        self.slots, self.wake_up = Slots(8, self._spawn), CountedWakeUps()
        self.rules = RulesOrders()
        deps = ExecutorDependencies(
            worker=Worker("w", "i"),
            appender=self,
            withheld=Withheld(self, clock, Metrics("tool_executor")),
            calls=calls,
            performer=performer,
            scribe=scribe,
            metrics=Metrics("tool_executor"),
            slots=self.slots,
            outdated=OutdatedGrants(Metrics("tool_executor")),
            unread_tries=UnreadTries(),
            heartbeat=self.heartbeat,
            crash=CrashPoints(),
            wake_up=self.wake_up,
            freezes=OrderTable(Table(MemoryLog(1), Topic.FREEZES), FreezeOrders()),
            policies=OrderTable(Table(MemoryLog(1), Topic.POLICIES), PolicyActivations()),
            rules=OrderTable(Table(MemoryLog(1), Topic.POLICIES), self.rules),
            spawn=self._spawn,
            quarantine=self._refuse,
            wake=lambda: None,
            workflows=workflows or Workflows(),
        )
        self.parts = deps
        self.handler = ExecutorHandler(deps)
        self.refuses: Callable[[Group], bool] = lambda _group: False
        self.after_append: Callable[[], None] = lambda: None
        self._read = 0

    async def start(self) -> None:
        """Connected."""

    async def stop(self, deadline_s: float = 5.0) -> None:
        """Disconnected."""

    def tell(self, listener: Callable[[Written], None]) -> None:
        """Nobody reads what it writes."""

    def stuck_s(self) -> float:
        return 0.0

    def refusals(self) -> Mapping[str, str]:
        return {}

    async def append(self, groups: Sequence[Group]) -> None:
        refused = [RefusedGroup(group, "Refused") for group in groups if self.refuses(group)]
        for one in (one for group in groups if not self.refuses(group) for one in group):
            self.records.append(self._record(one, len(self.records)))
        self.after_append()
        if refused:
            raise AppendRefused(refused)

    def events(self) -> list[Event]:
        return [one.body for record in self.records if isinstance(one := decode_event(record), Envelope)]

    async def write(self, *events: Event) -> None:
        await self.append([(self._draft(Topic.JOBS_EVENTS, event),) for event in events])

    async def read(self) -> None:
        """Hand over what was not read yet, in one batch."""
        records, self._read = self.records[self._read :], len(self.records)
        await self.handler.handle({Topic.JOBS_EVENTS: records})

    async def settle(self) -> None:
        """Read, and let tasks come to their end, until nothing moves."""
        while self.tasks or self._read < len(self.records):
            await self.read()
            await asyncio.sleep(0)

    async def grant(self, name: str, nodes: str = "a") -> str:
        """Plan nodes with that tool, one behind the other, and grant them as a run; the key of the first."""
        entry = RegistryEntry.model_validate({"act": act, "lose": lose}[name].registry_entry())
        before = dict(zip(nodes[1:], nodes, strict=False))
        chain = [{"id": one, "tool": name, "depends_on": [before[one]] if one in before else []} for one in nodes]
        plan = planned(graph(*chain, **{name: pin_of(entry).model_dump(mode="json")}))
        await self.write(created(), plan)
        await self.read()
        key = idempotency_key(JOB, "a", name, {})
        granted = ToolGrant(
            job_id=JOB,
            birth=0,
            as_of=1,
            revision=0,
            plan_hash=plan.plan_hash,
            nodes=tuple(nodes),
            idempotency_key=key,
            token=1,
            lease_id="l",
            deadline_s=5,
        )
        await self.handler.handle({Topic.TOOLS_GRANTS: [self._record(self._draft(Topic.TOOLS_GRANTS, granted), 0)]})
        return key

    async def come_back(self, *, is_restored: bool) -> None:
        """The partition is taken away undrained, and given back; its first `started` is read by then, or later."""
        kind = b"io.aetheris.tool_invocation_started.v1"
        started = next(at for at, one in enumerate(self.records) if ("ce_type", kind) in one.headers)
        self._read = len(self.records) if is_restored else started
        self.handler = ExecutorHandler(self.parts)
        self.handler.fold(self.records[: self._read])
        await self.handler.learn()
        await self.handler.restored()

    async def declared(self) -> ev.ToolInvocationStarted:
        await asyncio.gather(*self.tasks)
        (started,) = [event for event in self.events() if isinstance(event, ev.ToolInvocationStarted)]
        return started

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def _refuse(self, _record: Record, reason: str) -> None:
        raise AssertionError(reason)

    def _draft(self, topic: Topic, body: Any) -> Draft:
        return draft(topic, body, key=JOB, id="1", source="test", time="2026-01-01T00:00:00Z")

    def _record(self, one: Draft, offset: int) -> Record:
        return Record(one.topic, 0, offset, 0, one.key, one.headers, one.value)
