"""The ledger as a process on a real broker and a real Valkey: killed, restarted, its Redis wiped.

Planner, executor and verifier are played by the test.
"""

import asyncio
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.keys import args_hash, content_key, external_key, idempotency_key
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState, KeyState, Settled, St, birth
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import (
    Ended,
    LedgerRecord,
    Message,
    Resolve,
    ToolGrant,
    ToolRequest,
    Verification,
    WorkerEntry,
)
from aetheris.protocol.messages.envelope import Envelope, decode_event, draft
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectKind
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.process.settings import RuntimeSettings
from aetheris.runtime.redis.client import Redis
from aetheris.runtime.redis.effects import Effect, EffectStore

pytestmark = pytest.mark.real

DEADLINE_S = 60.0
TTL_S = 1.0
WATCHED = (Topic.JOBS_EVENTS, Topic.TOOLS_GRANTS, Topic.VERIFICATIONS, Topic.LEDGER_RECORDS)
WATCHED_DLQ = dead_letters(Topic.TOOLS_REQUESTS)
B = TypeVar("B", bound=Event)


@dataclass
class World:
    """A log, what was read of it, and the writers that the test plays."""

    log: KafkaLog
    redis: Redis
    environment: dict[str, str]
    partitions: int
    records: dict[str, list[Record]] = field(default_factory=dict[str, list[Record]])
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        self._appender = self.log.appender()

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator["World"]:
        await self._appender.start()
        watcher = asyncio.create_task(self._watch())
        try:
            yield self
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
            await self._appender.stop()

    async def _watch(self) -> None:
        topics = (*WATCHED, WATCHED_DLQ)
        places = [(str(topic), number) for topic in topics for number in range(self.partitions)]
        reader = self.log.reader()
        await reader.start()
        try:
            reader.assign(await self.log.beginning_offsets(places))
            while True:
                for (topic, _), records in (await reader.poll(1.0)).items():
                    self.records.setdefault(topic, []).extend(records)
                async with self._arrived:
                    self._arrived.notify_all()
        finally:
            await reader.stop()

    async def until(self, holds: Callable[[], Any]) -> None:
        """Wait for what the log must come to hold."""
        async with asyncio.timeout(DEADLINE_S), self._arrived:
            await self._arrived.wait_for(lambda: bool(holds()))

    async def put(self, *drafts: Draft) -> None:
        await self._appender.append([(one,) for one in drafts])

    @asynccontextmanager
    async def ledger(self, **environment: str) -> AsyncGenerator[asyncio.subprocess.Process]:
        """A ledger process; killed, not stopped, at the end."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "aetheris.ledger", env=os.environ | self.environment | environment
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
            await process.wait()

    async def flush(self) -> None:
        """Redis loses everything."""
        await self.redis.pipeline([("FLUSHALL",)])


@dataclass
class Job:
    """One job, and what is in the log of it."""

    world: World
    id: str
    plan: dict[str, Any]

    @property
    def log(self) -> list[tuple[int, Event]]:
        decoded = (decode_event(record) for record in self._records(Topic.JOBS_EVENTS))
        return [(one.record.offset, one.body) for one in decoded if isinstance(one, Envelope)]

    def _records(self, topic: str, key: str | None = None) -> list[Record]:
        wanted = (key or self.id).encode()
        return [record for record in self.world.records.get(topic, []) if record.key == wanted]

    def partitions(self, topic: str, key: str | None = None) -> set[int]:
        return {record.partition for record in self._records(topic, key)}

    @property
    def state(self) -> JobState:
        (offset, first), *rest = self.log
        assert isinstance(first, ev.JobCreated)
        job = birth(first, offset)
        for offset, event in rest:
            apply(job, event, offset)
        return job

    def key(self, node: str = "a") -> str:
        return idempotency_key(self.id, node, "act", None)

    def key_state(self, node: str = "a") -> KeyState:
        return self.state.keys.get(self.key(node)) or KeyState(node)

    def st(self) -> St:
        return self.key_state().st

    def of(self, kind: type[B]) -> list[B]:
        return [event for _, event in self.log if isinstance(event, kind)]

    @property
    def grants(self) -> list[ToolGrant]:
        return [ToolGrant.model_validate_json(record.value) for record in self._records(Topic.TOOLS_GRANTS)]

    @property
    def asks(self) -> list[Verification]:
        return [Verification.model_validate_json(record.value) for record in self._records(Topic.VERIFICATIONS)]

    @property
    def views(self) -> list[LedgerRecord]:
        found = self._records(Topic.LEDGER_RECORDS, self.key())
        return [LedgerRecord.model_validate_json(record.value) for record in found]

    async def add(self, *events: Event) -> None:
        await self.world.put(*(_draft(Topic.JOBS_EVENTS, event, self.id) for event in events))
        await self.world.until(lambda: events[-1] in [event for _, event in self.log])

    async def create(self) -> None:
        created = ev.JobCreated(job_id=self.id, tenant="acme", submitted_by="ann", request_hash="r")
        planned = ev.PlanGenerated(
            job_id=self.id,
            revision=0,
            plan_hash=digest(self.plan),
            task_graph=self.plan,
            planner="static",
            planner_version="1",
        )
        await self.add(created, planned)

    async def request(self, *nodes: str) -> None:
        state = self.state
        request = ToolRequest(
            job_id=self.id,
            birth=state.birth,
            as_of=state.last_offset,
            revision=0,
            plan_hash=state.plan_hash,
            nodes=nodes or ("a",),
        )
        await self.world.put(_draft(Topic.TOOLS_REQUESTS, request, self.id))

    async def granted(self, count: int = 1, token: int = 1) -> ToolGrant:
        """Wait for grants of this token."""
        await self.world.until(lambda: [grant.token for grant in self.grants].count(token) >= count)
        return self.grants[-1]

    async def start(self, nonce: str, token: int = 1, incarnation: str = "i1") -> None:
        started = ev.ToolInvocationStarted(
            job_id=self.id,
            node_id="a",
            idempotency_key=self.key(),
            invocation_id=nonce,
            revision=0,
            token=token,
            attempt_id=0,
            external_key=external_key(self.id, "a", 0),
            kind=EffectKind.TOOL,
            tool_name="act",
            tool_version="1",
            args_hash=args_hash(None),
            content_key=content_key("acme", "act", None),
            worker_id=self.worker,
            incarnation=incarnation,
        )
        await self.add(started)

    @property
    def worker(self) -> str:
        return f"worker-of-{self.id}"

    async def worker_ends(self, incarnation: str = "i1") -> None:
        ended = (Ended(incarnation=incarnation, how="lock"),)
        entry = WorkerEntry(worker_id=self.worker, live="i2", ended=ended)
        await self.world.put(_draft(Topic.WORKERS, entry, self.worker))

    def finished(self, nonce: str, outcome: str = "success", result: Any = None) -> ev.ToolInvocationFinished:
        return ev.ToolInvocationFinished(
            job_id=self.id,
            node_id="a",
            idempotency_key=self.key(),
            invocation_id=nonce,
            outcome=ev.Outcome(outcome),
            via=ev.Via.EXECUTOR,
            result=result,
            output_hash=digest(result),
        )

    async def put_effect(self, nonce: str, result: Any) -> None:
        committed = ev.CommandCommitted(
            job_id=self.id,
            node_id="a",
            command_id="a",
            idempotency_key=self.key(),
            kind=EffectKind.TOOL,
            input_hash=args_hash(None),
            output_hash=digest(result),
        )
        value = f'{{"finished":{self.finished(nonce, result=result).model_dump_json()},"committed":'
        value += committed.model_dump_json() + "}"
        await EffectStore(self.world.redis, 60.0).put([Effect(self.id, self.key(), nonce, value.encode())])

    async def answer(self, asked: Verification, said: str, **fields: Any) -> None:
        probed = ev.InvocationProbed(
            job_id=self.id,
            node_id="a",
            idempotency_key=asked.idempotency_key,
            invocation_id=asked.invocation_id,
            external_key=asked.external_key,
            ask=asked.ask,
            answer=ev.Answer(said),
            **fields,
        )
        await self.add(probed)


def _draft(topic: Topic, body: Event | Message, key: str) -> Draft:
    return draft(topic, body, key=key, id=str(uuid.uuid4()), source="tests", time="2030-01-01T00:00:00Z")


def job(world: World, effect_class: str, *, timeout_s: float = 0.5, settles_s: float = 0.0, **node: Any) -> Job:
    pin = {
        "version": "1",
        "schema_hash": "s",
        "effect_class": effect_class,
        "timeout_s": timeout_s,
        "settles_within_s": settles_s,
    }
    plan = {"tools": {"act": pin}, "nodes": [{"id": "a", "kind": "tool", "tool": "act"} | node]}
    return Job(world, f"ledger-{uuid.uuid4().hex[:12]}", plan)


@pytest.fixture
async def world(kafka: str, valkey_url: str, tmp_path: Path) -> AsyncIterator[World]:
    partitions = RuntimeSettings.model_validate({}).partitions
    await ensure_topics(kafka, partitions)
    environment = {
        "AETHERIS_KAFKA": kafka,
        "AETHERIS_REDIS": valkey_url,
        "AETHERIS_DATA": str(tmp_path),
        "AETHERIS_DEV": "true",
        "AETHERIS_LEASE_TTL_S": str(TTL_S),
        "AETHERIS_WORKER_ID": "ledger-under-test",
    }
    log, redis = KafkaLog(kafka), Redis(valkey_url)
    await log.start()
    try:
        async with World(log, redis, environment, partitions).watching() as made:
            yield made
    finally:
        await log.stop()
        await redis.close()


async def test_a_step_on_the_success_path(world: World) -> None:
    step = job(world, "opaque")
    await step.create()
    async with world.ledger():
        await step.request()
        grant = await step.granted()
        assert (grant.idempotency_key, grant.birth) == (step.key(), step.state.birth)
        await step.start("n1")
        await step.add(step.finished("n1", result={"id": 1}))
        await world.until(lambda: step.views)
    (view,) = step.views
    assert (view.status, view.committed, view.result, view.invocation_id) == ("success", True, {"id": 1}, "n1")
    assert step.partitions(Topic.LEDGER_RECORDS, step.key()) == step.partitions(Topic.JOBS_EVENTS)
    assert not step.of(ev.InvocationInDoubt)


async def test_an_open_request_outlives_the_ledger_and_redis(world: World) -> None:
    step = job(world, "opaque")
    await step.create()
    async with world.ledger():
        await step.request()
        await step.granted()
    await world.flush()
    given = len(step.grants)
    async with world.ledger():
        await step.granted(count=given + 1)
    assert {grant.token for grant in step.grants} == {1}


async def test_a_request_that_came_while_no_ledger_ran_is_granted(world: World) -> None:
    step = job(world, "opaque")
    await step.create()
    await step.request()
    async with world.ledger():
        await step.granted()


async def test_redis_loses_everything_and_nothing_is_doubted_too_early(world: World) -> None:
    step = job(world, "opaque", timeout_s=4.0)
    await step.create()
    async with world.ledger():
        await step.request()
        await step.granted()
        await step.start("n1")
        await world.flush()
        flushed_s = time.monotonic()
        await world.until(lambda: step.st() is St.PARKED)
        assert time.monotonic() - flushed_s >= TTL_S + 4.0
    assert [event.error_class for event in step.of(ev.InvocationInDoubt)] == ["lease_expired"]


async def test_an_idempotent_call_goes_on_with_the_next_token_across_a_kill(world: World) -> None:
    step = job(world, "idempotent")
    await step.create()
    async with world.ledger():
        await step.request()
        await step.granted()
        await step.start("n1")
    await step.worker_ends()
    async with world.ledger():
        await step.granted(token=2)
        await step.start("n2", token=2, incarnation="i2")
        await step.add(step.finished("n2"))
        await world.until(lambda: step.views)
    assert len({event.incarnation for event in step.of(ev.WorkerEnded)}) == len(step.of(ev.WorkerEnded)) == 1
    assert [event.next_token for event in step.of(ev.InvocationReopened)] == [2]
    assert step.key_state().settled_by == "n2"


async def test_an_effect_that_was_stored_but_not_reported_is_caught_up(world: World) -> None:
    step = job(world, "opaque")
    await step.create()
    async with world.ledger():
        await step.request()
        await step.granted()
        await step.start("n1")
        await step.put_effect("n1", {"id": 5})
        await step.worker_ends()
        await world.until(lambda: step.st() is St.SETTLED)
    state = step.key_state()
    assert (state.outcome, state.via, state.settled_by, state.result) == (
        Settled.SUCCESS,
        ev.Via.CATCH_UP,
        "n1",
        {"id": 5},
    )
    assert len(step.of(ev.CommandCommitted)) == 1
    assert {grant.token for grant in step.grants} == {1}  # asked again after a lease, on a slow machine


async def test_a_probe_after_the_end_of_the_worker_reopens_and_one_before_does_not(world: World) -> None:
    step = job(world, "probeable", settles_s=0.5)
    await step.create()
    async with world.ledger(AETHERIS_END_WAIT_S="60"):
        await step.request()
        await step.granted()
        await step.start("n1")
        await world.until(lambda: step.asks)
        await step.answer(step.asks[0], "not_found")
    async with world.ledger(AETHERIS_END_WAIT_S="60"):
        await world.until(lambda: len(step.asks) == 2)
        assert step.st() is St.STARTED
        await step.answer(step.asks[1], "not_found")
        await step.worker_ends()
        await world.until(lambda: len(step.asks) == 3)
        assert step.of(ev.WorkerEnded)
        assert step.st() is St.STARTED
        await step.answer(step.asks[2], "not_found")
        await step.granted(token=2)
    assert [event.by for event in step.of(ev.InvocationReopened)] == ["probe"]


async def test_a_probe_that_finds_settles(world: World) -> None:
    step = job(world, "probeable")
    await step.create()
    async with world.ledger():
        await step.start("n1")
        await step.worker_ends()
        await world.until(lambda: step.asks)
        await step.answer(step.asks[0], "found", result={"id": 2}, external_id="ch_2")
        await world.until(lambda: step.st() is St.SETTLED)
    state = step.key_state()
    assert (state.via, state.external_id, state.result) == (ev.Via.PROBE, "ch_2", {"id": 2})


async def test_a_scheduled_retry_outlives_the_ledger(world: World) -> None:
    step = job(world, "opaque", retry={"max_attempts": 2, "backoff_s": 6.0})
    await step.create()
    async with world.ledger():
        await step.request()
        await step.granted()
        await step.start("n1")
        await step.add(step.finished("n1", "retryable_failure"))
        await world.until(lambda: step.of(ev.RetryScheduled))
    async with world.ledger():
        await step.granted(token=2)
        assert len(step.of(ev.RetryScheduled)) == 1
        assert datetime.now(UTC) >= datetime.fromisoformat(step.of(ev.RetryScheduled)[0].due_at)


async def test_a_human_settles_what_is_parked(world: World) -> None:
    step = job(world, "opaque")
    await step.create()
    async with world.ledger():
        await step.start("n1")
        await step.worker_ends()
        await world.until(lambda: step.st() is St.PARKED)
        command = Resolve(
            job_id=step.id,
            by="bob",
            tenant="acme",
            execution_id=execution_id(step.id, "a", step.key()),
            verdict="happened",
            evidence="receipt 17",
            result={"size": "x" * 70_000},
            as_of=step.log[-1][0],
        )
        await world.put(_draft(Topic.JOBS_COMMANDS, command, step.id))
        await world.until(lambda: step.st() is St.SETTLED)
    (done,) = step.of(ev.ToolInvocationFinished)
    assert (done.via, done.by, done.evidence, done.result) == (ev.Via.HUMAN, "bob", "receipt 17", None)
    assert done.caused_by
    assert done.result_ref is not None
    blob = Path(world.environment["AETHERIS_DATA"]) / "blobs" / done.result_ref.sha256[:2] / done.result_ref.sha256
    assert blob.stat().st_size == done.result_ref.size


async def test_what_cannot_be_decoded_is_put_aside_and_the_rest_goes_on(world: World) -> None:
    step = job(world, "opaque")
    await step.create()
    async with world.ledger():
        await world.put(Draft(Topic.TOOLS_REQUESTS, step.id.encode(), b"no request"))
        await step.request()
        await step.granted()
        await world.until(lambda: [r for r in world.records.get(WATCHED_DLQ, []) if r.key == step.id.encode()])


async def test_an_irreversible_call_follows_the_policy_of_the_file(world: World, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rules]]\nname = "house-rule"\ntools = ["a*"]\neffect = "allow"\n')
    allowed, asked = job(world, "opaque", irreversible=True), job(world, "opaque", irreversible=True)
    await allowed.create()
    await asked.create()
    async with world.ledger(AETHERIS_POLICY=str(policy)):
        await allowed.request()
        grant = await allowed.granted()
    at = next(offset for offset, event in allowed.log if isinstance(event, ev.PolicyAllowed))
    assert grant.as_of >= at
    assert allowed.of(ev.PolicyAllowed)[0].rule == "house-rule"
    async with world.ledger():
        await asked.request()
        await world.until(lambda: asked.of(ev.JobWaiting))
    assert asked.of(ev.ApprovalRequested)[0].rule == "irreversible-needs-approval"
    assert not asked.grants


async def test_a_policy_that_cannot_be_used_stops_the_service_at_start(world: World, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rules]]\nname = "half"\ntools = ["*"]\n')
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "aetheris.ledger",
        env=os.environ | world.environment | {"AETHERIS_POLICY": str(policy)},
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_S):
        _, said = await process.communicate()
    assert process.returncode == 78, "final: nobody starts it again"
    assert b"rule 'half': effect" in said
