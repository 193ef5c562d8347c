"""The executor's edge without a broker: a partition fed by hand, and what it appends."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aetheris.protocol.base.keys import idempotency_key, trace_id
from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import RegistryEntry, ToolGrant
from aetheris.protocol.messages.envelope import Envelope, decode_event, draft
from aetheris.protocol.messages.event_values import Outcome
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.schemas import pin_of
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.blobs.store import FolderBlobs
from aetheris.runtime.blobs.traffic import BlobTraffic
from aetheris.runtime.log.interface import AppendRefused, RefusedGroup, Written
from aetheris.runtime.process.crash import CrashPoints
from aetheris.runtime.process.withheld import Withheld
from aetheris.runtime.redis.client import Redis, RedisUnavailable
from aetheris.runtime.redis.effects import EffectEntry, EffectStore
from aetheris.runtime.redis.leases import Lease, Leases
from aetheris.runtime.redis.wake_up import WakeUp
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.runtime.telemetry.spans import RecordedSpan
from aetheris.runtime.telemetry.tracer import Telemetry
from aetheris.sdk import tool
from aetheris.sdk.loader import Toolbox
from aetheris.tool_executor.core.partition import Worker
from aetheris.tool_executor.effect_writer import EffectWriter
from aetheris.tool_executor.handlers import ExecutorDependencies, ExecutorHandler
from aetheris.tool_executor.heartbeat import Heartbeat
from aetheris.tool_executor.performer import Performer, Scribe
from aetheris.tool_executor.secret_store import Secrets
from aetheris.tool_executor.slots import Slots
from aetheris.tool_executor.tool_calls import Calls
from tests.testkit.histories import JOB, about, created, finished, graph, planned

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

    def __init__(self, folder: Path, sample: float = 0.0, store: EffectStore | None = None) -> None:
        self.spans: list[RecordedSpan] = []
        self.records: list[Record] = []
        self.tasks: set[asyncio.Task[None]] = set()
        clock, telemetry = SystemClock(), Telemetry("tool_executor", sample, self.spans.append)
        calls = Calls(Toolbox({one.key: one for one in (act, lose)}), clock, Secrets(()))
        scribe = Scribe(clock, telemetry)
        performer = Performer(
            calls=calls,
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
        deps = ExecutorDependencies(
            worker=Worker("w", "i"),
            appender=self,
            withheld=Withheld(self, clock, Metrics("tool_executor")),
            calls=calls,
            performer=performer,
            scribe=scribe,
            metrics=Metrics("tool_executor"),
            slots=self.slots,
            heartbeat=self.heartbeat,
            crash=CrashPoints(),
            wake_up=self.wake_up,
            spawn=self._spawn,
            quarantine=self._refuse,
            wake=lambda: None,
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


async def test_what_was_declared_and_not_read_back_is_reported_as_not_executed(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    await bench.grant("act")
    await bench.handler.close()
    await bench.settle()
    last = bench.events()[-1]
    assert isinstance(last, ev.ToolInvocationFinished)
    assert (last.outcome, last.error) == (Outcome.RETRYABLE, "NotExecuted: the executor stopped before it")
    assert isinstance(bench.events()[-2], ev.ToolInvocationStarted)


async def test_a_start_that_is_read_after_its_partition_came_back_is_said_not_to_have_run(tmp_path: Path) -> None:
    """As where a leader is away: the lease lapses, the call is parked, and nobody waits for its `started` any more."""
    for is_parked, is_restored in itertools.product((False, True), (False, True)):
        bench = HandlerBench(tmp_path)
        await bench.grant("act")
        invocation_id = (await bench.declared()).invocation_id
        if is_parked:
            await bench.write(about(ev.InvocationParked, "a", invocation_id=invocation_id, reason="nobody knows"))
        await bench.come_back(is_restored=is_restored)
        await bench.settle()
        (recorded,) = [event for event in bench.events() if isinstance(event, ev.ToolInvocationFinished)]
        assert recorded.invocation_id == invocation_id
        assert (recorded.outcome, recorded.error, recorded.uncalled) == (
            Outcome.RETRYABLE,
            "NotExecuted: its partition was given back before the call",
            True,
        )


@pytest.mark.parametrize("lie", [None, "human", "ledger", "executor"])
async def test_of_a_call_that_was_begun_it_is_never_said(tmp_path: Path, lie: str | None) -> None:
    """Its report is lost; a void word about its end changes nothing."""
    bench = HandlerBench(tmp_path)
    bench.refuses = lambda group: _has("output_hash")(group) or _has("error_class")(group)
    await bench.grant("act")
    await bench.settle()
    invocation_id = (await bench.declared()).invocation_id
    bench.refuses = lambda _group: False
    if lie is not None:
        await bench.write(finished("b", invocation_id, outcome="permanent_failure", via=lie))
    await bench.come_back(is_restored=True)
    await bench.settle()
    assert "NotExecuted" not in str([event.model_dump() for event in bench.events()])


async def test_of_a_job_that_moved_away_only_what_has_no_end_in_the_log_stays_known(tmp_path: Path) -> None:
    """Nobody here will see it sealed."""
    ended, doubted = HandlerBench(tmp_path), HandlerBench(tmp_path)
    await ended.grant("act", "ab")
    await ended.settle()
    assert len(ended.parts.performer.begun[JOB]) == 2, "a repeat of its `started` may still be read"
    await ended.handler.close()
    assert ended.parts.performer.begun == {}
    await doubted.grant("lose")
    invocation_id = (await doubted.declared()).invocation_id
    await doubted.settle()
    await doubted.handler.close()
    assert doubted.parts.performer.begun == {JOB: {invocation_id: False}}


async def test_a_call_that_ends_after_its_job_moved_away_is_forgotten_with_its_report(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    await bench.grant("act")
    await bench.declared()
    await bench.read()  # it won, and is about to be called
    invocation_id = next(iter(bench.parts.performer.begun[JOB]))
    await bench.handler.close()
    assert bench.parts.performer.begun == {JOB: {invocation_id: False}}
    await asyncio.gather(*bench.tasks)
    assert isinstance(bench.events()[-1], ev.CommandCommitted | ev.ToolInvocationFinished | ev.StateChanged)
    assert bench.parts.performer.begun == {}


async def test_a_call_that_ends_while_its_partition_is_restored_is_no_stray(tmp_path: Path) -> None:
    """The end of what is read then was asked for before the report came."""
    bench = HandlerBench(tmp_path)
    await bench.grant("act")
    await bench.declared()
    await bench.read()  # it won, and is about to be called
    await bench.handler.close()
    bench.handler = ExecutorHandler(bench.parts)
    bench.handler.fold(bench.records)
    await asyncio.gather(*bench.tasks)
    assert bench.parts.performer.begun == {}
    await bench.handler.restored()
    await bench.settle()
    assert "NotExecuted" not in str([event.model_dump() for event in bench.events()])


async def test_what_was_taken_away_before_the_call_is_not_called(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    await bench.grant("act")
    invocation_id = (await bench.declared()).invocation_id
    reopened = about(ev.InvocationReopened, "a", invocation_id=invocation_id, next_token=2, by="policy")
    await bench.write(reopened)
    await bench.settle()
    last = bench.events()[-1]
    assert isinstance(last, ev.ToolInvocationFinished)
    assert (last.error, last.uncalled) == ("NotExecuted: superseded before the call", True)


async def test_what_lies_behind_a_record_that_nobody_here_can_read_is_not_called(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    await bench.grant("act")
    await bench.declared()
    headers = dict(bench.records[0].headers) | {"ce_type": b"io.aetheris.policy_allowed.v2"}
    bench.records.append(replace(bench.records[0], headers=tuple(headers.items()), offset=len(bench.records)))
    await bench.settle()
    last = bench.events()[-1]
    assert isinstance(last, ev.ToolInvocationFinished)
    assert (last.outcome, last.error) == (Outcome.RETRYABLE, "NotExecuted: the job waits for a newer version")


def fill(slots: Slots, many: int) -> None:
    """Nobody holds one, and now another tenant so many."""
    assert slots.taken == 0
    for _ in range(many):
        slots.take(OTHER)


def _has(name: str) -> Callable[[Group], bool]:
    return lambda group: any(name.encode() in one.value for one in group)


async def test_of_a_call_whose_report_is_refused_in_any_form_is_said_that_nobody_knows(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    bench.refuses = _has("output_hash")
    await bench.grant("act", "ab")
    await bench.settle()
    last = bench.events()[-1]
    assert isinstance(last, ev.InvocationInDoubt)
    assert last.error_class == "ReportRefused"
    fill(bench.slots, 8)


async def test_a_try_that_can_not_be_declared_is_not_made_and_holds_nothing(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    bench.refuses = _has("external_key")
    await bench.grant("act")
    await bench.settle()
    assert not any(isinstance(event, ev.ToolInvocationStarted | ev.ToolInvocationFinished) for event in bench.events())
    assert bench.handler.low_water(Topic.TOOLS_GRANTS) is None
    fill(bench.slots, 8)


async def test_slots_come_back_and_grants_are_discharged_whatever_becomes_of_a_try(tmp_path: Path) -> None:
    for name in ("act", "lose"):
        bench = HandlerBench(tmp_path)
        await bench.grant(name)
        assert bench.handler.low_water(Topic.TOOLS_GRANTS) == 0
        await bench.settle()
        assert bench.handler.low_water(Topic.TOOLS_GRANTS) is None
        fill(bench.slots, 8)
        assert not bench.slots.may_take(OTHER)


async def test_the_planner_is_woken_by_the_last_of_many_and_by_each_of_few(tmp_path: Path) -> None:
    alone = HandlerBench(tmp_path)
    await alone.grant("act")
    await alone.settle()
    assert alone.wake_up.rung == ["planner"]

    for others_end in (False, True):
        bench = HandlerBench(tmp_path)
        fill(bench.slots, OTHERS)
        await bench.grant("act")
        await bench.declared()
        if others_end:  # in the same append as the one looked at

            def all_end(slots: Slots = bench.slots) -> None:
                for _ in range(OTHERS):
                    slots.release(OTHER)

            bench.after_append = all_end
        await bench.settle()
        assert bench.wake_up.rung == (["planner"] if others_end else [])


async def test_spans_are_made_for_sampled_keys_and_for_those_in_doubt(tmp_path: Path) -> None:
    for name, sample, expected in (
        ("act", 1.0, ["begin", "put_effect", "execute_tool act"]),
        ("act", 0.0, []),
        ("lose", 0.0, ["execute_tool lose"]),
    ):
        bench = HandlerBench(tmp_path, sample)
        key = await bench.grant(name)
        await bench.settle()
        assert sorted(span.name for span in bench.spans) == sorted(expected)
        assert all(span.place.trace_id.hex() == trace_id(key) for span in bench.spans)


class _Slow(EffectStore):
    """Keeps nothing before it may."""

    def __init__(self) -> None:
        super().__init__(NOWHERE, 60)
        self.asked, self.may = asyncio.Event(), asyncio.Event()

    async def put(self, effects: Sequence[EffectEntry], deadline_s: float | None = None) -> None:  # noqa: ARG002
        self.asked.set()
        await self.may.wait()


async def test_what_is_withdrawn_while_an_effect_is_kept_is_not_declared_any_more(tmp_path: Path) -> None:
    store = _Slow()
    bench = HandlerBench(tmp_path, store=store)
    await bench.grant("act", "ab")
    await bench.declared()
    await bench.read()
    await store.asked.wait()
    await bench.handler.close()
    store.may.set()
    await asyncio.gather(*bench.tasks)
    nodes = [event.node_id for event in bench.events() if isinstance(event, ev.ToolInvocationStarted)]
    done = [event.node_id for event in bench.events() if isinstance(event, ev.CommandCommitted)]
    reported = [event.node_id for event in bench.events() if isinstance(event, ev.ToolInvocationFinished)]
    await bench.heartbeat.beat()
    assert (nodes, reported, done) == (["a"], ["a"], ["a"])
    assert (bench.slots.taken, bench.renewals.keys) == (0, [])


async def test_the_nodes_of_a_run_are_called_one_after_the_other(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    await bench.grant("act", "abc")
    await bench.settle()
    ends = (ev.ToolInvocationStarted, ev.ToolInvocationFinished)
    reported = [(event.event_type[16:], event.node_id) for event in bench.events() if isinstance(event, ends)]
    assert reported == [(what, node) for node in "abc" for what in ("started", "finished")]
    assert bench.slots.taken == 0


class _Store(EffectStore):
    """Counts pipelines; may be down."""

    def __init__(self) -> None:
        super().__init__(NOWHERE, 60)
        self.groups: list[int] = []
        self.down = False

    async def put(self, effects: Sequence[EffectEntry], deadline_s: float | None = None) -> None:  # noqa: ARG002
        await asyncio.sleep(0)
        if self.down:
            raise RedisUnavailable
        self.groups.append(len(effects))


async def test_effects_that_come_together_are_written_together() -> None:
    store = _Store()
    writer = EffectWriter(store, SystemClock(), 0.2, 60)
    effects = [EffectEntry("j", str(number), "n", b"{}") for number in range(5)]
    assert await asyncio.gather(*(writer.put(effect) for effect in effects)) == [True] * 5
    assert store.groups == [5]
    assert await writer.put(effects[0])
    store.down = True
    assert await asyncio.gather(*(writer.put(effect) for effect in effects)) == [False] * 5
    store.down = False
    assert not await writer.put(effects[0]), "a store that failed is left alone for a while"


async def test_a_failure_that_nobody_expects_reaches_whoever_waits_for_an_effect() -> None:
    class Broken(EffectStore):
        async def put(self, effects: Sequence[EffectEntry], deadline_s: float | None = None) -> None:  # noqa: ARG002
            raise ZeroDivisionError

    writer = EffectWriter(Broken(NOWHERE, 60), SystemClock(), 0.2, 60)
    for _ in range(2):  # and the next one is not left waiting either
        found = await asyncio.gather(
            *(writer.put(EffectEntry("j", key, "n", b"{}")) for key in "ab"), return_exceptions=True
        )
        assert [type(one) for one in found] == [ZeroDivisionError] * 2
