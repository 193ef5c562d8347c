"""The planner on a real broker: births, requests, ends, and what a kill leaves behind.

The test stands in for gateway, ledger and executor: it writes commands, reads requests and appends what tries report.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from aetheris.planner.app import planner
from aetheris.planner.settings import PlannerSettings
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.keys import args_hash, content_key, external_key, idempotency_key
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.protocol.base.words import TryWord, TryWords
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Cancel, JobCommand, JobIndexEntry, Submit, ToolRequest
from aetheris.protocol.messages.envelope import Envelope, decode_event, decode_message, draft
from aetheris.protocol.messages.event_values import BlobRef, Outcome, Via
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectKind
from aetheris.runtime.base.fresh_ids import fresh_id, fresh_secret
from aetheris.runtime.blobs.store import FolderBlobs
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.interface import Appender
from aetheris.runtime.process.runtime import runtime
from tests.testkit.histories import graph

pytestmark = pytest.mark.real

PARTITIONS = 4
DEADLINE_S = 60.0
SOURCE = "aetheris/test"


@dataclass
class SeenOnTopics:
    """Everything that the topics showed so far."""

    records: dict[str, list[Record]] = field(default_factory=dict[str, list[Record]])
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def of(self, topic: str, job_id: str) -> list[Record]:
        return [record for record in self.records.get(topic, []) if record.key == job_id.encode()]

    def events(self, job_id: str) -> list[Event]:
        found = (decode_event(record) for record in self.of(Topic.JOBS_EVENTS, job_id))
        return [one.body for one in found if isinstance(one, Envelope)]

    def types(self, job_id: str) -> list[str]:
        return [event.event_type for event in self.events(job_id)]

    def requests(self, job_id: str) -> list[ToolRequest]:
        found = (decode_message(record) for record in self.of(Topic.TOOLS_REQUESTS, job_id))
        bodies = (one.body for one in found if isinstance(one, Envelope))
        return [body for body in bodies if isinstance(body, ToolRequest)]

    def statuses(self, job_id: str) -> list[str]:
        return [JobIndexEntry.model_validate_json(record.value).status for record in self.of(Topic.JOBS_INDEX, job_id)]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@dataclass
class OtherServices:
    """The other services."""

    appender: Appender
    seen: SeenOnTopics

    async def command(self, *bodies: JobCommand) -> None:
        drafts = [
            draft(Topic.JOBS_COMMANDS, body, key=body.job_id, id=fresh_id(), source=SOURCE, time="t") for body in bodies
        ]
        await self.appender.append([(one,) for one in drafts])

    async def append(self, *events: Event) -> None:
        drafts = [
            draft(Topic.JOBS_EVENTS, event, key=event.job_id, id=fresh_id(), source=SOURCE, time="t")
            for event in events
        ]
        await self.appender.append([tuple(drafts)])

    async def run(self, job_id: str, node: str, result: Any = None, outcome: Outcome = Outcome.SUCCESS) -> None:
        await self.append(*tried(job_id, node, result, outcome))


@pytest.fixture
async def broker(kafka: str) -> str:
    await ensure_topics(kafka, PARTITIONS)
    return kafka


@pytest.fixture
async def other_services(broker: str) -> AsyncGenerator[OtherServices]:
    log = KafkaLog(broker)
    await log.start()
    appender, reader, seen = log.appender(), log.reader(), SeenOnTopics()
    await appender.start()
    await reader.start()
    topics = (Topic.JOBS_EVENTS, Topic.TOOLS_REQUESTS, Topic.JOBS_INDEX, dead_letters(Topic.JOBS_COMMANDS))
    reader.assign({(topic, number): 0 for topic in topics for number in range(PARTITIONS)})

    async def watch() -> None:
        while True:
            for (topic, _), records in (await reader.poll(0.2)).items():
                seen.records.setdefault(topic, []).extend(records)
            seen.changed.set()

    watching = asyncio.create_task(watch())
    yield OtherServices(appender, seen)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await reader.stop()
    await appender.stop()
    await log.stop()


@asynccontextmanager
async def planning(broker: str, data: Path, *, runs: bool = True) -> AsyncGenerator[None]:
    """A planner within this process."""
    settings = PlannerSettings.model_validate(
        {"kafka": broker, "partitions": PARTITIONS, "worker_id": "planner-0", "runs": runs, "data": data, "dev": True}
    )
    stop = asyncio.Event()
    async with runtime(settings, "planner") as parts:
        running = asyncio.create_task(planner(parts, settings, JobLogReader(parts.log)).run(stop))
        try:
            yield
        finally:
            stop.set()
            await running


@asynccontextmanager
async def process(broker: str, data: Path, **env: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A planner as a process of its own."""
    settings = {
        "AETHERIS_KAFKA": broker,
        "AETHERIS_DATA": str(data),
        "AETHERIS_PARTITIONS": str(PARTITIONS),
        "AETHERIS_WORKER_ID": "planner-0",
        "AETHERIS_DEV": "true",
        "AETHERIS_TRACE_SAMPLE": "0",
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "aetheris.planner", env={**os.environ, **settings, **env}
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_S):
            await child.wait()


def submission(plan: dict[str, Any], job_id: str | None = None, request_hash: str = "r") -> Submit:
    return Submit(job_id=job_id or f"job-{fresh_id()}", by="ann", tenant="acme", request_hash=request_hash, plan=plan)


def tried(job_id: str, node: str, result: Any, outcome: Outcome) -> Sequence[Event]:
    """A try of a node without arguments, as the executor reports it."""
    key, words = idempotency_key(job_id, node, "act", None), TryWords.of(fresh_secret())
    return (
        ev.ToolInvocationStarted(
            job_id=job_id,
            node_id=node,
            idempotency_key=key,
            invocation_id=words.invocation_id,
            revision=0,
            token=1,
            attempt_id=0,
            external_key=external_key(job_id, node, 0),
            kind=EffectKind.TOOL,
            tool_name="act",
            tool_version="1",
            args_hash=args_hash(None),
            content_key=content_key("acme", "act", None),
            worker_id="w",
            incarnation="i",
        ),
        ev.ToolInvocationFinished(
            job_id=job_id,
            node_id=node,
            idempotency_key=key,
            invocation_id=words.invocation_id,
            outcome=outcome,
            via=Via.EXECUTOR,
            result=result,
            output_hash=digest(result),
            word=words.word(TryWord.EFFECT if outcome.took_effect else TryWord.NO_EFFECT),
        ),
    )


CHAIN = graph({"id": "a"}, {"id": "b", "depends_on": ["a"]})


async def test_from_submission_to_the_end(broker: str, other_services: OtherServices, tmp_path: Path) -> None:
    seen, command = other_services.seen, submission(CHAIN)
    job_id = command.job_id
    async with planning(broker, tmp_path):
        await other_services.command(command)
        await seen.until(lambda: len(seen.requests(job_id)) == 1)
        (asked,) = seen.requests(job_id)
        (made, _) = seen.of(Topic.JOBS_EVENTS, job_id)
        assert (asked.nodes, asked.birth, asked.plan_hash) == (("a", "b"), made.offset, digest(CHAIN))
        assert asked.as_of == made.offset + 1
        await other_services.run(job_id, "a", 1)
        await other_services.run(job_id, "b", {"id": "x"})
        await seen.until(lambda: "completed" in seen.statuses(job_id))
    events = seen.events(job_id)
    assert [event.event_type for event in events if isinstance(event, ev.TERMINAL)] == ["job_completed"]
    assert next(event.result for event in events if isinstance(event, ev.JobCompleted)) == {"b": {"id": "x"}}
    assert {event.node_id for event in events if isinstance(event, ev.NodeFinished)} == {"a", "b"}
    assert seen.statuses(job_id) == ["running", "completed"]


async def test_cancel_right_behind_the_submission(broker: str, other_services: OtherServices, tmp_path: Path) -> None:
    seen, command = other_services.seen, submission(CHAIN)
    job_id = command.job_id
    async with planning(broker, tmp_path):
        await other_services.command(command, Cancel(job_id=job_id, by="bob", tenant="acme"))
        await seen.until(lambda: "cancelled" in seen.statuses(job_id))
    assert seen.types(job_id) == [
        "job_created",
        "plan_generated",
        "cancel_requested",
        "job_stopping",
        "job_cancelled",
    ]
    assert seen.requests(job_id) == []


async def test_a_dead_letter_for_what_is_no_plan_and_the_partition_goes_on(
    broker: str, other_services: OtherServices, tmp_path: Path
) -> None:
    seen = other_services.seen
    bad, good = submission({"nodes": [{"id": "a", "kind": "llm"}]}), submission(CHAIN)
    async with planning(broker, tmp_path):
        await other_services.command(bad, good, submission({"nodes": "none"}, bad.job_id))
        await seen.until(lambda: bool(seen.requests(good.job_id)))
        await seen.until(lambda: len(seen.of(dead_letters(Topic.JOBS_COMMANDS), bad.job_id)) == 2)
    reasons = [record.header("dlq_reason") for record in seen.of(dead_letters(Topic.JOBS_COMMANDS), bad.job_id)]
    assert reasons[0] == b"nodes[0].args/model: Field required"
    assert seen.types(bad.job_id) == []


async def test_killed_planners_bear_a_job_once_and_end_it(
    broker: str, other_services: OtherServices, tmp_path: Path
) -> None:
    seen, nodes = other_services.seen, [f"n{i}" for i in range(6)]
    plan = graph(*({"id": node, "depends_on": nodes[:i][-1:]} for i, node in enumerate(nodes)))
    command = submission(plan)
    job_id = command.job_id
    await other_services.command(command)
    for node in nodes[:-1]:
        async with process(broker, tmp_path, AETHERIS_RUNS="false") as child:
            await seen.until(lambda node=node: (node,) in {one.nodes for one in seen.requests(job_id)})
            child.kill()
            await child.wait()
        await other_services.run(job_id, node)
        await other_services.command(command)
    async with process(broker, tmp_path, AETHERIS_RUNS="false"):
        await other_services.run(job_id, nodes[-1])
        await seen.until(lambda: "completed" in seen.statuses(job_id))
    types = seen.types(job_id)
    assert types.count("job_created") == types.count("plan_generated") == 1
    reports = {event.node_id for event in seen.events(job_id) if isinstance(event, ev.NodeFinished)}
    assert reports == set(nodes)
    ids = [
        record.header("ce_id")
        for record in seen.of(Topic.JOBS_EVENTS, job_id)
        if record.header("ce_type") == b"io.aetheris.node_finished.v1"
    ]
    assert len(set(ids)) == len(nodes)


async def test_a_finished_job_stays_known_when_its_fold_is_gone(
    broker: str, other_services: OtherServices, tmp_path: Path
) -> None:
    seen, command = other_services.seen, submission(graph({"id": "a"}))
    job_id = command.job_id
    marker = submission(graph({"id": "a"}))
    async with planning(broker, tmp_path):
        await other_services.command(command)
        await seen.until(lambda: bool(seen.requests(job_id)))
        await other_services.run(job_id, "a")
        await seen.until(lambda: "completed" in seen.statuses(job_id))
        await other_services.append(sealed(job_id))
    async with planning(broker, tmp_path):
        await other_services.command(command, submission(CHAIN, job_id, "other"), marker)
        await seen.until(lambda: bool(seen.requests(marker.job_id)))
    assert seen.types(job_id).count("job_created") == 1
    assert len(seen.requests(job_id)) == 1


async def test_a_reference_into_a_large_result(broker: str, other_services: OtherServices, tmp_path: Path) -> None:
    seen = other_services.seen
    command = submission(graph({"id": "a"}, {"id": "b", "args": {"to": {"$ref": "a#/mail"}}}))
    job_id = command.job_id
    stored = await FolderBlobs(tmp_path / "blobs").put(json.dumps({"mail": "x@y", "rest": "z" * 100_000}).encode())
    async with planning(broker, tmp_path, runs=False):
        await other_services.command(command)
        await seen.until(lambda: bool(seen.requests(job_id)))
        start, end = tried(job_id, "a", None, Outcome.SUCCESS)
        ref = BlobRef(sha256=stored.sha256, size=stored.size)
        await other_services.append(start, end.model_copy(update={"result_ref": ref}))
        await seen.until(lambda: len(seen.requests(job_id)) == 2)
    assert seen.requests(job_id)[1].args == {"to": "x@y"}


def sealed(job_id: str) -> ev.JobSealed:
    return ev.JobSealed(
        job_id=job_id,
        tenant="acme",
        event_count=1,
        root="",
        chain=2,
        tree="",
        execution_hash="",
        outcome_hash="",
        sealed_at="",
        signature="",
        key_id="",
    )
