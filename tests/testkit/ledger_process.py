"""A ledger process on a real log whose other writers are played by the test, and a job that it adjudicates."""

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.keys import args_hash, content_key, external_key, idempotency_key
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, create_job
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import (
    LedgerRecord,
    Message,
    ToolGrant,
    ToolRequest,
    Verification,
    WorkerEntry,
)
from aetheris.protocol.messages.envelope import Envelope, decode_event, draft
from aetheris.protocol.messages.event_values import Answer, Outcome, Via
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectKind
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.redis.client import Redis
from aetheris.runtime.redis.effects import EffectEntry, EffectStore
from tests.testkit.lives import ended_word, incarnation_of
from tests.testkit.tries import end_word, try_of
from tests.testkit.watcher import Watcher

WATCHED = (Topic.JOBS_EVENTS, Topic.TOOLS_GRANTS, Topic.VERIFICATIONS, Topic.LEDGER_RECORDS)
WATCHED_DLQ = dead_letters(Topic.TOOLS_REQUESTS)
B = TypeVar("B", bound=Event)


@dataclass
class LedgerSurroundings:
    """A log, what was read of it, and the writers that the test plays."""

    log: KafkaLog
    redis: Redis
    environment: dict[str, str]
    records: dict[str, list[Record]] = field(default_factory=dict[str, list[Record]])

    def __post_init__(self) -> None:
        self._appender = self.log.appender()
        self._watcher = Watcher(self.log, (*WATCHED, WATCHED_DLQ), self._take)

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator["LedgerSurroundings"]:
        await self._appender.start()
        # Lives, and has not said what it serves: whoever else lives on this Kafka, calls of any tool are granted.
        lives = WorkerEntry(worker_id="serves-anything", live=incarnation_of("serves-anything"))
        await self.put(draft(Topic.WORKERS, lives, key=lives.worker_id, id=lives.worker_id, source="/test", time=""))
        try:
            async with self._watcher.watching():
                yield self
        finally:
            await self._appender.stop()

    async def until(self, holds: Callable[[], Any]) -> None:
        """Wait for what the log must come to hold."""
        await self._watcher.until(holds)

    def _take(self, record: Record) -> None:
        self.records.setdefault(record.topic, []).append(record)

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
class LedgerJob:
    """One job, and what is in the log of it."""

    around: LedgerSurroundings
    id: str
    plan: dict[str, Any]

    @property
    def log(self) -> list[tuple[int, Event]]:
        decoded = (decode_event(record) for record in self._records(Topic.JOBS_EVENTS))
        return [(one.record.offset, one.body) for one in decoded if isinstance(one, Envelope)]

    def _records(self, topic: str, key: str | None = None) -> list[Record]:
        wanted = (key or self.id).encode()
        return [record for record in self.around.records.get(topic, []) if record.key == wanted]

    def partitions(self, topic: str, key: str | None = None) -> set[int]:
        return {record.partition for record in self._records(topic, key)}

    @property
    def state(self) -> JobState:
        (offset, first), *rest = self.log
        assert isinstance(first, ev.JobCreated)
        job = create_job(first, offset)
        for offset, event in rest:
            apply(job, event, offset)
        return job

    def key(self, node: str = "a") -> str:
        return idempotency_key(self.id, node, "act", None)

    def key_state(self, node: str = "a") -> KeyState:
        return self.state.keys.get(self.key(node)) or KeyState(node)

    def status(self) -> KeyStatus:
        return self.key_state().status

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
        await self.around.put(*(drafted(Topic.JOBS_EVENTS, event, self.id) for event in events))
        await self.around.until(lambda: events[-1] in [event for _, event in self.log])

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
            birth=state.creation_offset,
            as_of=state.last_offset,
            revision=0,
            plan_hash=state.plan_hash,
            nodes=nodes or ("a",),
        )
        await self.around.put(drafted(Topic.TOOLS_REQUESTS, request, self.id))

    async def granted(self, count: int = 1, token: int = 1) -> ToolGrant:
        """Wait for grants of this token."""
        await self.around.until(lambda: [grant.token for grant in self.grants].count(token) >= count)
        return self.grants[-1]

    async def start(self, invocation_id: str, token: int = 1, incarnation: str = "i1") -> None:
        started = ev.ToolInvocationStarted(
            job_id=self.id,
            node_id="a",
            idempotency_key=self.key(),
            invocation_id=try_of(invocation_id),
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
            incarnation=incarnation_of(incarnation),
        )
        await self.add(started)

    @property
    def worker(self) -> str:
        return f"worker-of-{self.id}"

    async def worker_ends(self, incarnation: str = "i1") -> None:
        entry = WorkerEntry(worker_id=self.worker, ended=(ended_word(incarnation),))
        await self.around.put(drafted(Topic.WORKERS, entry, self.worker))

    def finished(self, invocation_id: str, outcome: str = "success", result: Any = None) -> ev.ToolInvocationFinished:
        return ev.ToolInvocationFinished(
            job_id=self.id,
            node_id="a",
            idempotency_key=self.key(),
            invocation_id=try_of(invocation_id),
            outcome=Outcome(outcome),
            via=Via.EXECUTOR,
            result=result,
            output_hash=digest(result),
            word=end_word(invocation_id, outcome, Via.EXECUTOR),
        )

    async def put_effect(self, invocation_id: str, result: Any) -> None:
        committed = ev.CommandCommitted(
            job_id=self.id,
            node_id="a",
            command_id="a",
            idempotency_key=self.key(),
            kind=EffectKind.TOOL,
            input_hash=args_hash(None),
            output_hash=digest(result),
        )
        value = f'{{"finished":{self.finished(invocation_id, result=result).model_dump_json()},"committed":'
        value += committed.model_dump_json() + "}"
        await EffectStore(self.around.redis, 60.0).put(
            [EffectEntry(self.id, self.key(), try_of(invocation_id), value.encode())]
        )

    async def answer(self, asked: Verification, text: str, **fields: Any) -> None:
        probed = ev.InvocationProbed(
            job_id=self.id,
            node_id="a",
            idempotency_key=asked.idempotency_key,
            invocation_id=asked.invocation_id,
            external_key=asked.external_key,
            ask=asked.ask,
            answer=Answer(text),
            **fields,
        )
        await self.add(probed)


def drafted(topic: Topic, body: Event | Message, key: str) -> Draft:
    """A record of who is played."""
    return draft(topic, body, key=key, id=str(uuid.uuid4()), source="tests", time="2030-01-01T00:00:00Z")


def ledger_job(
    around: LedgerSurroundings, effect_class: str, *, timeout_s: float = 0.5, settles_s: float = 0.0, **node: Any
) -> LedgerJob:
    pin = {
        "version": "1",
        "schema_hash": "s",
        "effect_class": effect_class,
        "timeout_s": timeout_s,
        "settles_within_s": settles_s,
    }
    plan = {"tools": {"act": pin}, "nodes": [{"id": "a", "kind": "tool", "tool": "act"} | node]}
    return LedgerJob(around, f"ledger-{uuid.uuid4().hex[:12]}", plan)
