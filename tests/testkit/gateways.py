"""A gateway on a real broker and Valkey; events are appended by hand, in the planner's place."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from aetheris.gateway.app import gateway
from aetheris.gateway.settings import GatewaySettings
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import JobIndexEntry, Message, RegistryEntry
from aetheris.protocol.messages.envelope import Envelope, decode_message, draft
from aetheris.protocol.plan.graph import EffectClass
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.log.interface import Appender
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.replay import replay
from aetheris.runtime.redis.client import Redis
from aetheris.sdk.client import (
    AsyncClient,
)
from tests.testkit import histories as h
from tests.testkit.http_api import wrong_answer
from tests.testkit.tokens import token_of, write_tokens

DEADLINE_S = 45.0
PARTITIONS = 4
VIEW = "aetheris:gateway:{lists}:job:"
"""The key of a job's row in Redis, without its id."""
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


class Described(httpx.AsyncHTTPTransport):
    """Fails where an answer is not as docs/openapi.json has it."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await super().handle_async_request(request)
        if answer.headers.get("content-type") == "application/json" and "/verify" not in request.url.path:
            content = await answer.aread()
            assert wrong_answer(request.method, str(request.url), answer.status_code, content) == []
        return answer


@dataclass
class GatewaySurroundings:
    """A gateway, and everything around it done by hand."""

    url: str
    settings: GatewaySettings
    log: KafkaLog
    appender: Appender
    redis: Redis
    tokens: dict[str, str]
    tenant: str

    def client(self, who: str = "ann") -> AsyncClient:
        """The SDK's, whose answers must be as the API's document has them."""
        return AsyncClient(self.url, self.tokens.get(who, "no-such-token"), transport=Described())

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
        creation_offset = (await self.log.end_offsets([place]))[place]
        created = ev.JobCreated(job_id=job_id, tenant=self.tenant, submitted_by="ann", request_hash="r", plan=PLAN)
        await self.append(created, h.planned(h.graph({"id": "a"})).model_copy(update={"job_id": job_id}))
        if index:
            await self.list_as(job_id, "running", creation_offset, request_hash)
        return creation_offset

    async def list_as(self, job_id: str, status: str, creation_offset: int, request_hash: str = "r") -> None:
        entry = JobIndexEntry(
            job_id=job_id,
            birth=creation_offset,
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


@contextlib.asynccontextmanager
async def running(settings: GatewaySettings, tenant: str = "") -> AsyncGenerator[GatewaySurroundings]:
    """`tenant` is ann's and bob's: nobody else's by default."""
    tenant = tenant or f"acme-{fresh_id()[-12:]}"  # its first digits are the time
    tenants = {"ann": tenant, "bob": tenant, "eve": f"not-{tenant}"}
    write_tokens(settings.data, tenants)
    tokens = {who: token_of(who) for who in tenants}
    log, redis = KafkaLog(settings.kafka), Redis(settings.redis)
    async with gateway(settings) as http:
        await log.start()
        appender = log.appender()
        await appender.start()
        surroundings = GatewaySurroundings(
            f"http://127.0.0.1:{http.port}", settings, log, appender, redis, tokens, tenant
        )
        await surroundings.say(Topic.TOOLS_REGISTRY, TOOL.key, TOOL)
        try:
            await eventually(lambda: is_ready(surroundings))
            yield surroundings
        finally:
            await appender.stop()
            await log.stop()
            await redis.close()


async def is_ready(surroundings: GatewaySurroundings) -> bool:
    async with surroundings.client() as client, httpx.AsyncClient(base_url=surroundings.url) as raw:
        tools = {tool["name"] for tool in await client.tools()}
        return (await raw.get("/readyz")).status_code == 200 and TOOL.name in tools
