"""The gateway on a real broker and Valkey; events are appended by hand, in the planner's place."""

import asyncio
import contextlib
import gc
import json
import os
import random
import signal
import sys
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from aetheris.cli.embedded.kafka import broker_in, install, wait_ready
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.probes import kafka_answers
from aetheris.cli.embedded.processes import end, spawn
from aetheris.gateway.app import gateway
from aetheris.gateway.feed import Subscription
from aetheris.gateway.settings import GatewaySettings
from aetheris.protocol.base.ids import job_id_of
from aetheris.protocol.base.keys import external_key
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Cancel, JobIndexEntry, Message, RegistryEntry, Resolve, Submit
from aetheris.protocol.messages.envelope import Envelope, decode_message, draft
from aetheris.protocol.plan.graph import EffectClass
from aetheris.runtime.base.ids import fresh_id
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.log.interface import Appender
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.replay import replay
from aetheris.runtime.process.http import HttpServer
from aetheris.runtime.redis.client import Redis
from aetheris.sdk.client import (
    AsyncClient,
    BadRequest,
    Client,
    Conflict,
    Forbidden,
    JobEvent,
    NotFound,
    Unauthorized,
    Unreachable,
)
from tests.testkit import histories as h

pytestmark = pytest.mark.real

DEADLINE_S = 45.0
PARTITIONS = 4
VIEW = "aetheris:gateway:job:"
TIME = "2026-01-01T00:00:00.000000Z"
PLAN = {"nodes": [{"id": "a", "tool": "gw.pay", "args": {"amount": 1}}]}
TOOL = RegistryEntry(
    name="gw.pay",
    version="1.2",
    schema={
        "type": "object",
        "properties": {"amount": {"type": "integer"}},
        "required": ["amount"],
        "additionalProperties": False,
    },
    schema_hash="s",
    effect_class=EffectClass.OPAQUE,
)


@dataclass
class World:
    """A gateway, and everything around it done by hand."""

    url: str
    settings: GatewaySettings
    log: KafkaLog
    appender: Appender
    redis: Redis
    tokens: dict[str, str]
    tenant: str = field(default_factory=lambda: "acme")

    def client(self, who: str = "ann") -> AsyncClient:
        return AsyncClient(self.url, self.tokens.get(who, "no-such-token"))

    def raw(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=f"{self.url}/api", headers={"authorization": f"Bearer {self.tokens['ann']}"}, timeout=DEADLINE_S
        )

    async def append(self, *events: ev.Event, ids: Sequence[str] | None = None) -> None:
        for index, event in enumerate(events):
            event_id = ids[index] if ids is not None else fresh_id()
            record = draft(Topic.JOBS_EVENTS, event, key=event.job_id, id=event_id, source="test", time=TIME)
            await self.appender.append([(record,)])

    async def say(self, topic: Topic, key: str, body: Message) -> None:
        await self.appender.append([(draft(topic, body, key=key, id=fresh_id(), source="test", time=TIME),)])

    async def bear(self, job_id: str, *, index: bool = True, request_hash: str = "r") -> int:
        """What the planner does with a submission; the job's birth."""
        place = (Topic.JOBS_EVENTS, partition_of(job_id, PARTITIONS))
        birth = (await self.log.end_offsets([place]))[place]
        created = ev.JobCreated(job_id=job_id, tenant=self.tenant, submitted_by="ann", request_hash="r", plan=PLAN)
        await self.append(created, h.planned(h.graph({"id": "a"})).model_copy(update={"job_id": job_id}))
        if index:
            await self.list_as(job_id, "running", birth, request_hash)
        return birth

    async def list_as(self, job_id: str, status: str, birth: int, request_hash: str = "r") -> None:
        entry = JobIndexEntry(
            job_id=job_id,
            birth=birth,
            request_hash=request_hash,
            status=status,
            tenant=self.tenant,
            submitted_by="ann",
            created_at=TIME,
        )
        await self.say(Topic.JOBS_INDEX, job_id, entry)

    async def started_job(self) -> str:
        async with self.client() as client:
            job_id = (await client.submit(PLAN)).job_id
        await self.bear(job_id)
        return job_id

    async def commands(self, job_id: str) -> list[Envelope[Message]]:
        place = (Topic.JOBS_COMMANDS, partition_of(job_id, PARTITIONS))
        begin = (await self.log.beginning_offsets([place]))[place]
        end = (await self.log.end_offsets([place]))[place]
        found: list[Envelope[Message]] = []
        async for records in replay(self.log, place, begin, end):
            decoded = [decode_message(record) for record in records if record.key == job_id.encode()]
            found += [one for one in decoded if isinstance(one, Envelope)]
        return found

    async def command(self, job_id: str, kind: type[Message]) -> Envelope[Message]:
        """The first command of that kind, once it is there."""
        found: list[Envelope[Message]] = []

        async def there() -> bool:
            found[:] = [one for one in await self.commands(job_id) if isinstance(one.body, kind)]
            return bool(found)

        await eventually(there)
        return found[0]

    async def appended(self) -> int:
        """How many commands there are, of all jobs."""
        places = [(Topic.JOBS_COMMANDS, number) for number in range(PARTITIONS)]
        return sum((await self.log.end_offsets(places)).values())


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await holds():  # noqa: ASYNC110  other processes ring no bell here
            await asyncio.sleep(0.02)


def settings_of(kafka: str, redis: str, data: Path, **more: Any) -> GatewaySettings:
    given = {"kafka": kafka, "redis": redis, "data": data, "dev": True, "http_port": 0, "partitions": PARTITIONS}
    return GatewaySettings.model_validate({**given, "answer_s": 1.0, "verifier_url": "http://127.0.0.1:9", **more})


def write_tokens(data: Path) -> dict[str, str]:
    tenants = {"ann": "acme", "bob": "acme", "eve": "other"}
    tokens = {who: uuid.uuid4().hex for who in tenants}
    entries = [f'[[token]]\nvalue = "{tokens[who]}"\nname = "{who}"\ntenant = "{tenants[who]}"\n' for who in tokens]
    (data / "tokens.toml").write_text("\n".join(entries))
    return tokens


@contextlib.asynccontextmanager
async def running(settings: GatewaySettings) -> AsyncGenerator[World]:
    tokens = write_tokens(settings.data)
    log, redis = KafkaLog(settings.kafka), Redis(settings.redis)
    async with gateway(settings) as http:
        await log.start()
        appender = log.appender()
        await appender.start()
        world = World(f"http://127.0.0.1:{http.port}", settings, log, appender, redis, tokens)
        await world.say(Topic.TOOLS_REGISTRY, TOOL.key, TOOL)
        try:
            await eventually(lambda: _ready(world))
            yield world
        finally:
            await appender.stop()
            await log.stop()
            await redis.close()


async def _ready(world: World) -> bool:
    async with world.client() as client, httpx.AsyncClient(base_url=world.url) as raw:
        tools = {tool["name"] for tool in await client.tools()}
        return (await raw.get("/readyz")).status_code == 200 and TOOL.name in tools


@pytest.fixture
def settings(kafka: str, valkey_url: str, tmp_path: Path) -> GatewaySettings:
    return settings_of(kafka, valkey_url, tmp_path)


BAD: dict[str, tuple[Any, str]] = {
    "cycle": (
        {
            "plan": {
                "nodes": [
                    {"id": "a", "tool": "gw.pay", "args": {"amount": 1}, "depends_on": ["b"]},
                    {"id": "b", "tool": "gw.pay", "args": {"amount": 1}, "depends_on": ["a"]},
                ]
            }
        },
        "plan.nodes[0].depends_on",
    ),
    "unknown tool": ({"plan": {"nodes": [{"id": "a", "tool": "gw.fly"}]}}, "plan.nodes[0].tool"),
    "wrong argument": (
        {"plan": {"nodes": [{"id": "a", "tool": "gw.pay", "args": {"amount": "x"}}]}},
        "plan.nodes[0].args/amount",
    ),
    "dangling reference": (
        {"plan": {"nodes": [{"id": "a", "tool": "gw.pay", "args": {"amount": {"$ref": "z#/n"}}}]}},
        "plan.nodes[0].args/amount",
    ),
    "2 MB": ({"plan": {"nodes": [{"id": "a", "tool": "gw.pay", "args": {"x": "y" * 2_000_000}}]}}, "plan"),
    "invalid JSON": (b'{"plan": {"nodes": [', "body"),
    "duplicate keys": (b'{"plan": {"nodes": [], "nodes": []}}', "nodes"),
    "goal": ({"goal": "get rich", "tools": []}, "goal"),
    "kind": ({"plan": {"nodes": [{"id": "a", "kind": "llm"}]}}, "plan.nodes[0].args/model"),
}


async def test_bad_input_is_refused_and_nothing_is_appended(settings: GatewaySettings) -> None:
    async with running(settings) as world, world.raw() as raw:
        before = await world.appended()
        for name, (body, where) in BAD.items():
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            answer = await raw.post("/jobs", content=content, headers={"idempotency-key": "same"})
            assert (name, answer.status_code) == (name, 400)
            assert (name, answer.json()["error"]["details"]["field"]) == (name, where)
        for path, where in [("/jobs?limit=0", "limit"), ("/jobs?limit=x", "limit")]:
            answer = await raw.get(path)
            assert (answer.status_code, answer.json()["error"]["details"]["field"]) == (400, where)
        assert await world.appended() == before
        assert (await raw.post("/jobs", json={"plan": PLAN}, headers={"idempotency-key": "same"})).status_code == 202


async def test_one_key_is_one_job(settings: GatewaySettings) -> None:
    async with running(settings) as world, world.client() as client:
        key = uuid.uuid4().hex
        jobs = await asyncio.gather(*(client.submit(PLAN, idempotency_key=key) for _ in range(5)))
        assert len({job.job_id for job in jobs}) == 1
        other = {"nodes": [{"id": "a", "tool": "gw.pay", "args": {"amount": 2}}]}
        with pytest.raises(Conflict) as refused:
            await client.submit(other, idempotency_key=key)
        assert refused.value.code == "idempotency_conflict"
        submits = await world.commands(jobs[0].job_id)
        assert {one.id for one in submits} == {submits[0].id}
        body = submits[0].body
        assert isinstance(body, Submit)
        assert (body.by, body.tenant) == ("ann", "acme")
        assert body.plan is not None
        assert body.plan["tools"]["gw.pay"]["version"] == "1.2"


async def test_a_submission_is_there_at_once(settings: GatewaySettings) -> None:
    async with running(settings) as world, world.client() as client:
        job_id = (await client.submit(PLAN)).job_id
        assert (await client.job(job_id)).status == "submitted"
        assert await client.events(job_id) == []
        assert job_id in {job.job_id for job in (await client.jobs(status="submitted")).jobs}
        await world.bear(job_id, index=False)
        job = await client.job(job_id)
        assert (job.status, job.steps[0].state) == ("running", "pending")
        assert [event.seq for event in await client.events(job_id)] == [1, 2]


async def test_pages_are_newest_first_without_gap_or_repeat(settings: GatewaySettings) -> None:
    async with running(settings) as world, world.client() as client:
        made = [(await client.submit(PLAN)).job_id for _ in range(7)]
        seen: list[str] = []
        cursor: str | None = None
        while not set(made) <= set(seen):
            page = await client.jobs(cursor=cursor, limit=3)
            seen += [job.job_id for job in page.jobs]
            cursor = page.cursor
            assert cursor is not None or set(made) <= set(seen), "the last page, and some are missing"
        assert [job_id for job_id in seen if job_id in made] == made[::-1]  # the broker is shared: others have jobs
        assert len(seen) == len(set(seen))
        await world.list_as(made[0], "completed", await world.bear(made[0]))

        async def moved() -> bool:
            done = {job.job_id for job in (await client.jobs(status="completed", limit=200)).jobs}
            open_ = {job.job_id for job in (await client.jobs(status="submitted", limit=200)).jobs}
            return made[0] in done and made[0] not in open_

        await eventually(moved)


async def test_who_may_see_what(settings: GatewaySettings) -> None:
    async with running(settings) as world, world.client() as ann, world.client("eve") as eve:
        job_id = (await ann.submit(PLAN)).job_id
        async with world.client("nobody") as nobody:
            for call in (nobody.job(job_id), nobody.submit(PLAN), nobody.tools(), nobody.cancel(job_id)):
                with pytest.raises(Unauthorized):
                    await call
        before = await world.appended()
        for call in (eve.job(job_id), eve.events(job_id), eve.cancel(job_id), eve.verify(job_id), ann.job("no-such")):
            with pytest.raises(NotFound) as missing:
                await call
            assert missing.value.code == "unknown_job"
        assert [event async for event in _first(eve, job_id)] == []
        assert job_id not in {job.job_id for job in (await eve.jobs()).jobs}
        assert await world.appended() == before


async def _first(client: AsyncClient, job_id: str) -> AsyncGenerator[JobEvent]:
    with contextlib.suppress(NotFound):
        async for event in client.follow(job_id):
            yield event


async def test_repeats_of_an_event_are_dropped(settings: GatewaySettings) -> None:
    async with running(settings) as world, world.client() as client:
        job_id = await world.started_job()
        event = ev.CancelRequested(job_id=job_id, by="ann")
        await world.append(event, event, event, ids=["x", "x", "y"])
        assert [(one.seq, one.type) for one in await client.events(job_id)] == [
            (1, "job_created"),
            (2, "plan_generated"),
            (3, "cancel_requested"),
            (4, "cancel_requested"),
        ]
        assert [one.seq for one in await client.events(job_id, after=2, limit=1)] == [3]


async def test_streams_resume_without_gap_or_repeat(settings: GatewaySettings) -> None:
    seed = int(os.environ.get("SEED", "0")) or uuid.uuid4().int % 2**32
    print(f"SEED={seed}")  # noqa: T201  a random test prints its seed
    chance = random.Random(seed)  # noqa: S311  not for secrets
    async with running(settings) as world, world.raw() as raw:
        job_id = await world.started_job()
        total = 300

        async def write() -> None:
            for number in range(total - 3):
                event = ev.StateCheckpointed(job_id=job_id, state_hash=str(number), as_of=number)
                copies = 2 if chance.random() < 0.2 else 1
                await world.append(*[event] * copies, ids=[f"{job_id}-{number}"] * copies)
            await world.append(ev.JobCompleted(job_id=job_id))

        writing = asyncio.create_task(write())
        seen: list[int] = []
        names: dict[int, str] = {}
        async with asyncio.timeout(60):
            while len(seen) < total:
                part = await read_some(raw, job_id, seen[-1] if seen else 0, chance.randrange(1, 60))
                seen += [number for number, _ in part]
                names.update(part)
        await writing
        assert seen == list(range(1, total + 1))
        assert (names[1], names[2], names[3], names[total]) == ("status", "status", "", "done")


async def read_some(raw: httpx.AsyncClient, job_id: str, last: int, count: int) -> list[tuple[int, str]]:
    """Up to `count` (id, name) of the stream after `last`, or fewer where it says nothing more."""
    found: list[tuple[int, str]] = []
    name = ""
    headers = {"accept": "text/event-stream", "last-event-id": str(last)}
    async with raw.stream("GET", f"/jobs/{job_id}/events", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                name = line[7:]
            if line.startswith("id: "):
                found.append((int(line[4:]), name))
                name = ""
            if len(found) == count or name == "done":
                break
    return found if found or name != "done" else [(last + 1, "done")]


async def test_the_client_follows_to_the_end(settings: GatewaySettings) -> None:
    async with running(settings) as world, world.client() as client:
        job_id = await world.started_job()

        async def finish() -> None:
            await world.append(ev.JobFailed(job_id=job_id, error="a failed"))

        finishing = asyncio.create_task(finish())
        followed = [event async for event in client.follow(job_id)]
        await finishing
        assert [event.type for event in followed] == ["job_created", "plan_generated", "job_failed"]
        job = await client.job(job_id)
        assert (job.status, job.error, job.ended) == ("failed", "a failed", True)
        assert await asyncio.to_thread(lambda: _follow_sync(world, job_id)) == [2, 3]


def _follow_sync(world: World, job_id: str) -> list[int]:
    with Client(world.url, world.tokens["ann"]) as client:
        return [event.seq for event in client.follow(job_id, after=1)]


async def test_lost_views_are_never_a_404(settings: GatewaySettings) -> None:
    async with running(settings) as world, world.raw() as raw, world.client() as client:
        indexed = await world.started_job()
        submitted = (await client.submit(PLAN)).job_id

        async def listed() -> bool:
            return indexed in {job.job_id for job in (await client.jobs(status="running", limit=200)).jobs}

        await eventually(listed)
        said: list[int] = []
        async with asyncio.timeout(DEADLINE_S):
            while said.count(503) < 3:  # the rebuild may be over before the first request
                await world.redis.pipeline([("FLUSHALL",)])
                said.append(0)
                while said[-1] != 200:
                    answer = await raw.get(f"/jobs/{indexed}")
                    said.append(answer.status_code)
                    assert answer.status_code == 200 or int(answer.headers["retry-after"]) >= 1
                said.append((await raw.get(f"/jobs/{submitted}")).status_code)
                said.append((await raw.get("/jobs")).status_code)
        assert set(said) == {0, 200, 503}
        assert (await client.job(submitted)).status == "submitted"
        assert {indexed, submitted} <= {job.job_id for job in (await client.jobs(limit=200)).jobs}


async def test_what_was_submitted_is_known_though_redis_and_the_gateway_forgot_it(settings: GatewaySettings) -> None:
    """Nobody has taken it up: nothing but its command says that it is."""
    async with running(settings) as world, world.client() as client:
        submitted = (await client.submit(PLAN)).job_id
        await world.redis.pipeline([("FLUSHALL",)])
    async with running(settings) as world, world.raw() as raw, world.client() as client:
        assert (await client.job(submitted)).status == "submitted"
        for view in ("events", "ledger", "trace"):
            answer = await raw.get(f"/jobs/{submitted}/{view}")
            assert answer.status_code == (200 if view == "events" else 503)
        async with world.client("eve") as other:
            with pytest.raises(NotFound):
                await other.job(submitted)
        with pytest.raises(NotFound):
            await client.job("never-submitted")
        later = (await client.submit(PLAN)).job_id
        await world.redis.pipeline([("DEL", f"{VIEW}{later}")])
        assert (await client.job(later)).status == "submitted"
        await world.bear(submitted)

        async def running_now() -> bool:
            return (await client.job(submitted)).status == "running"

        await eventually(running_now)


def listeners() -> int:
    """How many the gateway of this process has."""
    gc.collect()
    return sum(isinstance(one, Subscription) for one in gc.get_objects())


async def listening(count: int) -> None:
    async def are() -> bool:
        return listeners() == count

    await eventually(are)


def waiting(raw: httpx.AsyncClient, key: str, seconds: int = 45) -> "asyncio.Task[httpx.Response]":
    """A submission that waits for its job's end."""
    headers = {"Prefer": f"wait={seconds}", "Idempotency-Key": key}
    return asyncio.create_task(raw.post("/jobs", json={"plan": PLAN}, headers=headers))


ENDS: dict[str, Callable[[str], ev.Event]] = {
    "completed": lambda job_id: ev.JobCompleted(job_id=job_id),
    "failed": lambda job_id: ev.JobFailed(job_id=job_id, error="no"),
    "cancelled": lambda job_id: ev.JobCancelled(job_id=job_id, by="ann"),
}


async def test_a_wait_ends_with_its_job(settings: GatewaySettings) -> None:
    async with running(settings) as world, world.raw() as raw:
        for status, end_of in ENDS.items():
            key = uuid.uuid4().hex
            job_id = job_id_of("acme", key)
            first = waiting(raw, key)
            submit = (await world.command(job_id, Submit)).body  # appended behind the subscription
            assert isinstance(submit, Submit)
            asked = [first, waiting(raw, key)]
            asked.append(asyncio.create_task(raw.get(f"/jobs/{job_id}", headers={"Prefer": "wait=600"})))
            await listening(3)
            birth = await world.bear(job_id, request_hash=submit.request_hash)
            assert not [one for one in asked if one.done()]
            await world.append(end_of(job_id))
            answers = await asyncio.gather(*asked)
            assert [(one.status_code, one.json()["status"]) for one in answers] == [(200, status)] * 3
            applied = [one.headers["Preference-Applied"] for one in answers]
            assert applied == ["wait=45", "wait=45", "wait=60"]
            assert answers[0].json() == {"job_id": job_id, "status": status}
            assert answers[2].json()["steps"]
            # what ended before its waiters listened is seen in the list, once that has it
            late = [waiting(raw, key), asyncio.create_task(raw.get(f"/jobs/{job_id}", headers={"Prefer": "wait=45"}))]
            await listening(2)
            await world.list_as(job_id, status, birth, submit.request_hash)
            answers = await asyncio.gather(*late, waiting(raw, key))
            assert [(one.status_code, one.json()["status"]) for one in answers] == [(200, status)] * 3
        await listening(0)


async def test_a_wait_is_over_in_time_when_its_client_leaves_and_when_the_gateway_stops(
    settings: GatewaySettings,
) -> None:
    key = uuid.uuid4().hex
    async with contextlib.AsyncExitStack() as clients:
        async with running(settings) as world:
            raw = await clients.enter_async_context(world.raw())
            for seconds in (0, 1):
                answer = await waiting(raw, key, seconds)
                assert (answer.status_code, answer.json()["status"]) == (202, "submitted")
                assert answer.headers["Preference-Applied"] == f"wait={seconds}"
            job_id = answer.json()["job_id"]
            assert (await raw.get(f"/jobs/{job_id}", headers={"Prefer": "wait=0"})).json()["status"] == "submitted"
            tasks = len(asyncio.all_tasks())
            leaving = [
                waiting(raw, key),
                asyncio.create_task(raw.get(f"/jobs/{job_id}", headers={"Prefer": "wait=45"})),
            ]
            await listening(2)
            for one in leaving:
                one.cancel()

            async def gone() -> bool:
                return listeners() == 0 and len(asyncio.all_tasks()) <= tasks

            await eventually(gone)
            before = await world.appended()
            for nonsense in ("wait", "wait=", "wait=soon", "wait=-1", "wait=1.5", f"wait={'9' * 5000}"):
                for asked in (
                    raw.post("/jobs", json={"plan": PLAN}, headers={"Prefer": nonsense}),
                    raw.get(f"/jobs/{job_id}", headers={"Prefer": nonsense}),
                ):
                    refused = await asked
                    assert (refused.status_code, refused.json()["error"]["details"]["field"]) == (400, "Prefer"), (
                        nonsense
                    )
            assert await world.appended() == before
            last = waiting(raw, key)
            await listening(1)
        assert (await last).status_code == 202


async def test_cancel_is_answered_by_the_log(settings: GatewaySettings) -> None:
    async with running(settings) as world, world.raw() as raw:
        job_id = await world.started_job()
        asking = asyncio.create_task(raw.post(f"/jobs/{job_id}/cancel", json={"reason": "enough"}))
        command = await world.command(job_id, Cancel)
        body = command.body
        assert isinstance(body, Cancel)
        assert (body.by, body.tenant, body.reason) == ("ann", "acme", "enough")
        await world.append(ev.CancelRequested(job_id=job_id, by="ann", caused_by=command.id))
        answer = await asking
        assert (answer.status_code, answer.json()["event"]) == (200, "cancel_requested")
        again = await raw.post(f"/jobs/{job_id}/cancel")
        assert again.status_code == 200
        await world.append(ev.JobCancelled(job_id=job_id, by="ann"))
        assert (await raw.get(f"/jobs/{job_id}")).json()["status"] == "cancelled"


async def test_cancel_of_what_has_ended_is_refused(settings: GatewaySettings) -> None:
    async with running(settings) as world, world.client() as client:
        job_id = await world.started_job()
        racing = asyncio.create_task(client.cancel(job_id))
        await world.command(job_id, Cancel)
        await world.append(ev.JobCompleted(job_id=job_id))
        with pytest.raises(Conflict):
            await racing
        before = await world.appended()
        with pytest.raises(Conflict) as refused:
            await client.cancel(job_id)
        assert refused.value.code == "illegal_transition"
        assert await world.appended() == before


async def test_without_an_answer_it_is_202(settings: GatewaySettings) -> None:
    async with running(settings) as world, world.raw() as raw:
        job_id = await world.started_job()
        answer = await raw.post(f"/jobs/{job_id}/cancel")
        assert (answer.status_code, answer.json()["event"]) == (202, None)


async def test_a_human_resolves_what_is_parked(settings: GatewaySettings) -> None:
    async with running(settings) as world, world.client("bob") as client, world.client() as submitter:
        job_id = await world.started_job()
        of_job = {"job_id": job_id}
        started = h.started("a", "n1").model_copy(update={**of_job, "external_key": external_key(job_id, "a", 0)})
        await world.append(started)
        step = (await client.job(job_id)).steps[0]
        assert (step.state, step.attempts) == ("running", 1)
        assert step.execution_id is not None
        with pytest.raises(Conflict):
            await client.resolve(job_id, step.execution_id, "not_executed", evidence="looked")
        with pytest.raises(NotFound):
            await client.resolve(job_id, "no-such", "happened", evidence="looked")
        parked = h.about(ev.InvocationParked, "a", invocation_id="n1", reason="opaque").model_copy(update=of_job)
        await world.append(parked)
        job = await client.job(job_id)
        assert (job.status, job.steps[0].state) == ("waiting", "waiting")
        assert job.why is not None
        before = await world.appended()
        for verdict in ("happened", "not_executed", "retry"):
            with pytest.raises(Forbidden, match="who submitted the job may not resolve"):
                await submitter.resolve(job_id, step.execution_id, verdict, evidence="mine")
        assert await world.appended() == before
        asking = asyncio.create_task(
            client.resolve(job_id, step.execution_id, "happened", evidence="seen", result={"id": 7})
        )
        command = await world.command(job_id, Resolve)
        settled = h.finished("a", "n1", via="human", result={"id": 7})
        await world.append(settled.model_copy(update={**of_job, "caused_by": command.id}))
        assert (await asking).event == "tool_invocation_finished"
        assert (await client.job(job_id)).steps[0].state == "completed"
        with pytest.raises(Conflict):
            await client.resolve(job_id, step.execution_id, "retry", evidence="again")


async def test_proofs_come_from_the_verifier(kafka: str, valkey_url: str, tmp_path: Path) -> None:
    app = FastAPI()

    @app.get("/jobs/{job_id}/verify")
    async def verify(job_id: str) -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        return {"execution_hash": job_id}

    server = HttpServer(app, "127.0.0.1", 0)
    serving = asyncio.create_task(server.run())
    await server.listening()
    settings = settings_of(kafka, valkey_url, tmp_path, verifier_url=f"http://127.0.0.1:{server.port}")
    async with running(settings) as world, world.client() as client:
        job_id = await world.started_job()
        assert await client.verify(job_id) == {"execution_hash": job_id}
        server.stop()
        await serving
        with pytest.raises(Unreachable) as refused:
            await client.verify(job_id)
        assert refused.value.retry_after_s is not None


async def test_without_redis_it_is_503(kafka: str, valkey_url: str, tmp_path: Path) -> None:
    async with running(settings_of(kafka, valkey_url, tmp_path)) as world:
        tokens = world.tokens
    settings = settings_of(kafka, "redis://127.0.0.1:9/0", tmp_path)
    async with gateway(settings) as http:
        write = tmp_path / "tokens.toml"
        assert write.exists()
        async with AsyncClient(f"http://127.0.0.1:{http.port}", tokens["ann"]) as client:
            for call in (client.job("x"), client.jobs(), client.submit(PLAN, idempotency_key="k"), client.cancel("x")):
                with pytest.raises(Unreachable) as refused:
                    await call
                assert refused.value.retry_after_s is not None


async def test_errors_have_one_shape(settings: GatewaySettings) -> None:
    async with running(settings) as world, world.raw() as raw:
        for method, path, status in [("GET", "/nowhere", 404), ("DELETE", "/jobs", 405)]:
            answer = await raw.request(method, path)
            assert answer.status_code == status
            assert set(answer.json()["error"]) == {"code", "message", "details"}
        with pytest.raises(BadRequest) as refused:
            async with world.client() as client:
                await client.submit({"nodes": []})
        assert (refused.value.code, refused.value.field) == ("invalid_plan", "plan.nodes")


async def test_a_process_of_its_own_serves_and_stops(settings: GatewaySettings) -> None:
    async with running(settings):
        pass  # topics are there, tokens are written
    environment = os.environ | {
        "AETHERIS_KAFKA": settings.kafka,
        "AETHERIS_REDIS": settings.redis,
        "AETHERIS_DATA": str(settings.data),
        "AETHERIS_DEV": "true",
        "AETHERIS_HTTP_PORT": "0",
        "AETHERIS_HEALTH_PORT": "0",
    }
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "aetheris.gateway", env=environment)
    try:
        await eventually(lambda: asyncio.to_thread(_listens, process.pid))
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _listens(pid: int) -> bool:
    """Whether the process has two listening TCP sockets: the API's and health's."""
    inodes = set[str]()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(link))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[3] == "0A" and f"socket:[{row[9]}]" in inodes for row in rows) >= 2


async def test_views_of_another_run_of_redis_are_built_again(settings: GatewaySettings) -> None:
    async with running(settings) as world, world.raw() as raw:
        job_id = await world.started_job()
        # A restarted server keeps the epoch, but has another run id: the last second of writes may be gone.
        await world.redis.pipeline([("SET", "aetheris:gateway:epoch", "another-run"), ("DEL", f"{VIEW}{job_id}")])
        said: list[int] = []
        async with asyncio.timeout(DEADLINE_S):
            while not said or said[-1] != 200:
                said.append((await raw.get(f"/jobs/{job_id}")).status_code)
        assert set(said) <= {503, 200}


async def test_a_frozen_broker_is_503_and_streams_outlast_it(valkey_url: str, tmp_path: Path) -> None:
    broker = broker_in(install(lambda _part, _message: None), tmp_path / "broker", Ports(tmp_path))
    broker.prepare()
    child = spawn(broker.argv(), log=tmp_path / "kafka.log")
    try:
        up, alive = (lambda: kafka_answers(broker.address)), (lambda: child.poll() is None)
        await asyncio.to_thread(wait_ready, "kafka", up, alive, tmp_path / "kafka.log")
        await _outlast(settings_of(broker.address, valkey_url, tmp_path, request_s=1.0), child.pid)
    finally:
        child.send_signal(signal.SIGCONT)
        await asyncio.to_thread(end, child, 10.0)


async def _outlast(settings: GatewaySettings, broker_pid: int) -> None:
    async with running(settings) as world, world.client() as client:
        job_id = await world.started_job()
        followed: list[int] = []

        async def follow() -> None:
            followed.extend([event.seq async for event in client.follow(job_id)])

        following = asyncio.create_task(follow())
        os.kill(broker_pid, signal.SIGSTOP)
        for call in (client.job(job_id), client.events(job_id), client.submit(PLAN), client.cancel(job_id)):
            with pytest.raises(Unreachable) as refused:
                await asyncio.wait_for(call, 5.0)
            assert refused.value.retry_after_s is not None
        os.kill(broker_pid, signal.SIGCONT)
        await world.append(ev.JobCompleted(job_id=job_id))
        await asyncio.wait_for(following, DEADLINE_S)
        assert followed == [1, 2, 3]
        assert (await client.job(job_id)).status == "completed"
        assert (await client.submit(PLAN)).status == "submitted"
