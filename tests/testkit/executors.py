"""An executor on a real log whose other writers are played by the test, and its tools."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.keys import idempotency_key
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState, KeyStatus, create_job
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import RegistryEntry, ToolGrant
from aetheris.protocol.messages.envelope import Envelope, Undecodable, decode_event, draft
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.schemas import pin_of
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.redis.client import Redis
from aetheris.sdk import Failed, NotExecuted, Partial, Result, StateChange, ToolContext, tool
from aetheris.sdk.loader import Toolbox
from aetheris.sdk.tools import AnyTool
from aetheris.tool_executor.app import serve
from aetheris.tool_executor.settings import ExecutorSettings
from tests.testkit.watcher import DEADLINE_S, Watcher

CALLS: Counter[str] = Counter()
RELEASE: dict[str, asyncio.Event] = {}


@tool(effect_class="opaque", irreversible=False)
def noop() -> None:
    """Changes nothing."""


@tool(effect_class="idempotent")
async def note(ctx: ToolContext, text: str, wait_for: str = "") -> Result:
    """Counts what it did, by external key; may wait until it is released."""
    CALLS[ctx.external_key] += 1
    if wait_for:
        await RELEASE.setdefault(wait_for, asyncio.Event()).wait()
    return Result({"text": text, "n": CALLS[ctx.external_key]}, "ext-1", [StateChange("note", text, "insert")])


@tool(effect_class="opaque", irreversible=False)
async def shout(text: str) -> dict[str, str]:
    """Refers to what another returned."""
    return {"text": text.upper()}


@tool(effect_class="opaque", irreversible=False)
async def breaks(how: str) -> Any:
    """Ends as it is told."""
    errors: dict[str, Exception] = {
        "unsent": NotExecuted("refused"),
        "failed": Failed("no such account"),
        "lost": ConnectionResetError("secret in here"),
    }
    if how in errors:
        raise errors[how]
    return Partial({"half": True})


@tool(effect_class="pure")
async def looks() -> None:
    """Reads only, and fails."""
    raise ConnectionResetError


@tool(effect_class="pure")
async def large(size: int) -> dict[str, str]:
    """Returns more than a record should hold."""
    return {"data": "x" * size}


@tool(effect_class="pure")
async def measure(data: str) -> int:
    """Its argument is large."""
    return len(data)


TOOLS: tuple[AnyTool, ...] = (noop, note, shout, breaks, looks, large, measure)


def pinned(tools: Sequence[AnyTool] = TOOLS) -> dict[str, Any]:
    entries = [RegistryEntry.model_validate(one.registry_entry()) for one in tools]
    return {entry.name: pin_of(entry).model_dump(mode="json") for entry in entries}


@dataclass
class ExecutorSurroundings:
    """A log with its other writers played by the test, and what the executor wrote."""

    log: KafkaLog
    redis: Redis
    settings: ExecutorSettings
    records: list[Envelope[Event]] = field(default_factory=list[Envelope[Event]])

    def __post_init__(self) -> None:
        self._appender = self.log.appender()
        self._watcher = Watcher(self.log, [Topic.JOBS_EVENTS], self._take)

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator["ExecutorSurroundings"]:
        await self._appender.start()
        try:
            async with self._watcher.watching():
                yield self
        finally:
            await self._appender.stop()

    async def until(self, holds: Callable[[], Any]) -> None:
        await self._watcher.until(holds)

    def _take(self, record: Record) -> None:
        """The broker is shared: other tests write what can't be decoded."""
        with suppress(Undecodable):
            decoded = decode_event(record)
            self.records += [decoded] if isinstance(decoded, Envelope) else []

    def of(self, job_id: str) -> list[Envelope[Event]]:
        return [one for one in self.records if one.body.job_id == job_id]

    def types(self, job_id: str) -> list[str]:
        return [one.body.event_type for one in self.of(job_id)][2:]

    def fold(self, job_id: str) -> JobState:
        first, *rest = self.of(job_id)
        assert isinstance(first.body, ev.JobCreated)
        job = create_job(first.body, first.record.offset)
        for one in rest:
            apply(job, one.body, one.record.offset)
        return job

    async def write(self, *events: Event) -> None:
        """One group of jobs.events."""
        await self._appender.append([tuple(self._draft(Topic.JOBS_EVENTS, event, event.job_id) for event in events)])

    async def raw(self, one: Draft) -> None:
        await self._appender.append([(one,)])

    async def job(self, *nodes: dict[str, Any], tools: dict[str, Any] | None = None) -> str:
        """A planned job, read back."""
        job_id = f"job-{uuid.uuid4().hex[:12]}"
        graph = {"tools": tools or pinned(), "nodes": [{"kind": "tool"} | node for node in nodes]}
        await self.write(
            ev.JobCreated(job_id=job_id, tenant="acme", submitted_by="ann", request_hash="r"),
            ev.PlanGenerated(
                job_id=job_id, revision=0, plan_hash=digest(graph), task_graph=graph, planner="t", planner_version="1"
            ),
        )
        await self.until(lambda: len(self.of(job_id)) == 2)
        return job_id

    def granted(self, job_id: str, *nodes: str, args: dict[str, Any] | None = None, **fields: Any) -> ToolGrant:
        job = self.fold(job_id)
        entry = job.entry(nodes[0])
        assert entry is not None
        key = idempotency_key(job_id, nodes[0], entry.node.tool_name, entry.node.args if args is None else args)
        state = job.keys.get(key)
        base: dict[str, Any] = {
            "job_id": job_id,
            "birth": job.creation_offset,
            "as_of": job.last_offset,
            "revision": 0,
            "plan_hash": job.plan_hash,
            "nodes": nodes,
            "idempotency_key": key,
            "token": state.fencing_token if state is not None else 1,
            "lease_id": uuid.uuid4().hex,
            "deadline_s": 30.0,
        }
        return ToolGrant.model_validate(base | fields)

    async def grant(self, job_id: str, *nodes: str, times: int = 1, **fields: Any) -> ToolGrant:
        granted = self.granted(job_id, *nodes, **fields)
        await self._appender.append([(self._draft(Topic.TOOLS_GRANTS, granted, job_id),)] * times)
        return granted

    async def granted_noop(self) -> str:
        """A job of one node, granted."""
        job_id = await self.job({"id": "a", "tool": "noop"})
        await self.grant(job_id, "a")
        return job_id

    def started_by(self, worker_id: str) -> bool:
        """Whether that worker ever declared anything."""
        started = (one.body for one in self.records if isinstance(one.body, ev.ToolInvocationStarted))
        return any(event.worker_id == worker_id for event in started)

    async def settled(self, job_id: str, count: int = 1) -> list[Any]:
        """The keys of a job, once as many are settled."""

        def found() -> list[Any]:
            keys = list(self.fold(job_id).keys.values())
            return keys if sum(key.status is KeyStatus.SETTLED for key in keys) >= count else []

        await self.until(found)
        return found()

    async def answered(self, job_id: str) -> None:
        """Its call has ended, or was withdrawn with its partition."""
        await self.until(lambda: "tool_invocation_finished" in self.types(job_id))

    def _draft(self, topic: Topic, body: Any, key: str) -> Draft:
        return draft(topic, body, key=key, id=uuid.uuid4().hex, source="test", time="2026-01-01T00:00:00Z")


@asynccontextmanager
async def executing(settings: ExecutorSettings, tools: Sequence[AnyTool] = TOOLS) -> AsyncGenerator[asyncio.Event]:
    """The service in this process; stopped, and its errors raised, at the end."""
    stop = asyncio.Event()
    running = asyncio.create_task(serve(settings, stop, Toolbox({one.key: one for one in tools})))
    try:
        yield stop
    finally:
        stop.set()
        async with asyncio.timeout(DEADLINE_S):
            await running
