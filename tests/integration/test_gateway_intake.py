"""Submissions: refused by field, once for each key, there at once, known though others forgot them."""

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from aetheris.gateway.settings import GatewaySettings
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import Submit
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.sdk.client import (
    Conflict,
    ResourceNotFound,
)
from tests.testkit.gateways import (
    PLAN,
    TIME,
    TOOL,
    VIEW,
    eventually,
    running,
    settings_of,
)

pytestmark = pytest.mark.real


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
    async with running(settings) as surroundings, surroundings.raw() as raw:
        before = await surroundings.appended()
        for name, (body, where) in BAD.items():
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            answer = await raw.post("/jobs", content=content, headers={"idempotency-key": "same"})
            assert (name, answer.status_code) == (name, 400)
            assert (name, answer.json()["error"]["details"]["field"]) == (name, where)
        for path, where in [("/jobs?limit=0", "limit"), ("/jobs?limit=x", "limit")]:
            answer = await raw.get(path)
            assert (answer.status_code, answer.json()["error"]["details"]["field"]) == (400, where)
        assert await surroundings.appended() == before
        assert (await raw.post("/jobs", json={"plan": PLAN}, headers={"idempotency-key": "same"})).status_code == 202


async def test_a_line_that_describes_no_tool_keeps_nobody_from_submitting(settings: GatewaySettings) -> None:
    """Whoever may write to tools.registry says what no tool can be, under names of his own and of others."""
    async with running(settings) as surroundings, surroundings.client() as client:
        for name, wrong in {
            "gw.other": {"timeout_s": float("inf")},
            "gw.third": {"schema": {"maximum": float("nan")}},
            "gw.pay": {"version": "9" * 5000},
        }.items():
            said = TOOL.model_dump(mode="json") | {"name": name} | wrong
            honest = draft(Topic.TOOLS_REGISTRY, TOOL, key=TOOL.key, id=fresh_id(), source="test", time=TIME)
            key, value = f"{name}@{said['version']}".encode(), json.dumps(said).encode()
            await surroundings.appender.append([(Draft(honest.topic, key, value, honest.headers),)])
        last = TOOL.model_copy(update={"name": "gw.last"})
        await surroundings.say(Topic.TOOLS_REGISTRY, last.key, last)

        async def read_on() -> bool:
            return "gw.last" in {tool["name"] for tool in await client.tools()}

        await eventually(read_on)
        assert {"gw.other", "gw.third"}.isdisjoint(tool["name"] for tool in await client.tools())
        await surroundings.bear((await client.submit(PLAN)).job_id)


async def test_one_key_is_one_job(settings: GatewaySettings) -> None:
    async with running(settings) as surroundings, surroundings.client() as client:
        key = uuid.uuid4().hex
        jobs = await asyncio.gather(*(client.submit(PLAN, idempotency_key=key) for _ in range(5)))
        assert len({job.job_id for job in jobs}) == 1
        other = {"nodes": [{"id": "a", "tool": "gw.pay", "args": {"amount": 2}}]}
        with pytest.raises(Conflict) as refused:
            await client.submit(other, idempotency_key=key)
        assert refused.value.code == "idempotency_conflict"
        submits = await surroundings.commands(jobs[0].job_id)
        assert {one.id for one in submits} == {submits[0].id}
        body = submits[0].body
        assert isinstance(body, Submit)
        assert (body.by, body.tenant) == ("ann", surroundings.tenant)
        assert body.plan is not None
        assert body.plan["tools"]["gw.pay"]["version"] == "1.2"


async def test_a_submission_is_there_at_once(settings: GatewaySettings) -> None:
    async with running(settings) as surroundings, surroundings.client() as client:
        job_id = (await client.submit(PLAN)).job_id
        assert (await client.job(job_id)).status == "submitted"
        assert await client.events(job_id) == []
        assert job_id in {job.job_id for job in (await client.jobs(status="submitted")).jobs}
        await surroundings.bear(job_id, index=False)
        job = await client.job(job_id)
        assert (job.status, job.steps[0].state) == ("running", "pending")
        assert [event.seq for event in await client.events(job_id)] == [1, 2]


async def test_what_was_submitted_is_known_though_redis_and_the_gateway_forgot_it(settings: GatewaySettings) -> None:
    """Nobody has taken it up: nothing but its command says that it is."""
    async with running(settings) as surroundings, surroundings.client() as client:
        submitted = (await client.submit(PLAN)).job_id
        await surroundings.redis.pipeline([("FLUSHALL",)])
        tenant = surroundings.tenant
    async with running(settings, tenant) as surroundings, surroundings.raw() as raw, surroundings.client() as client:
        assert (await client.job(submitted)).status == "submitted"
        for view in ("events", "ledger", "trace"):
            answer = await raw.get(f"/jobs/{submitted}/{view}")
            assert answer.status_code == (200 if view == "events" else 503)
        async with surroundings.client("eve") as other:
            with pytest.raises(ResourceNotFound):
                await other.job(submitted)
        with pytest.raises(ResourceNotFound):
            await client.job("never-submitted")
        later = (await client.submit(PLAN)).job_id
        await surroundings.redis.pipeline([("DEL", f"{VIEW}{later}")])
        assert (await client.job(later)).status == "submitted"
        await surroundings.bear(submitted)

        async def running_now() -> bool:
            return (await client.job(submitted)).status == "running"

        await eventually(running_now)
