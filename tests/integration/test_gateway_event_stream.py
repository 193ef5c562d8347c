"""A job's events: numbered, streamed, resumed, followed."""

import asyncio
import os
import random
import uuid
from pathlib import Path

import httpx
import pytest

from aetheris.gateway.settings import GatewaySettings
from aetheris.protocol.messages import events as ev
from aetheris.sdk.client import (
    Client,
)
from tests.testkit.gateways import (
    GatewaySurroundings,
    eventually,
    running,
    settings_of,
)

pytestmark = pytest.mark.real


@pytest.fixture
def settings(kafka: str, valkey_url: str, tmp_path: Path) -> GatewaySettings:
    return settings_of(kafka, valkey_url, tmp_path)


async def test_repeats_of_an_event_are_dropped(settings: GatewaySettings) -> None:
    async with running(settings) as surroundings, surroundings.client() as client:
        job_id = await surroundings.started_job()
        event = ev.CancelRequested(job_id=job_id, by="ann")
        await surroundings.append(event, event, event, ids=["x", "x", "y"])
        assert [(one.seq, one.type) for one in await client.events(job_id)] == [
            (1, "job_created"),
            (2, "plan_generated"),
            (3, "cancel_requested"),
            (4, "cancel_requested"),
        ]
        assert [one.seq for one in await client.events(job_id, after=2, limit=1)] == [3]


async def test_a_caller_holds_a_bounded_number_of_streams_and_waits(
    kafka: str, valkey_url: str, tmp_path: Path
) -> None:
    async with (
        running(settings_of(kafka, valkey_url, tmp_path, streams_per_caller=1)) as surroundings,
        surroundings.raw() as raw,
        surroundings.client("bob") as bob,
    ):
        job_id = await surroundings.started_job()
        events, stream = f"/jobs/{job_id}/events", {"Accept": "text/event-stream"}
        async with raw.stream("GET", events, headers=stream) as held:
            assert held.status_code == 200
            for path, headers in ((events, stream), (f"/jobs/{job_id}", {"Prefer": "wait=5"})):
                refused = await raw.get(path, headers=headers)
                assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
                assert refused.json()["error"]["details"] == {"limit": "streams_per_caller", "retry_after_s": 1}
            assert (await bob.job(job_id, wait_s=0)).status == "running"
        await eventually(lambda: _answers(raw, f"/jobs/{job_id}"))


async def _answers(raw: httpx.AsyncClient, path: str) -> bool:
    return (await raw.get(path, headers={"Prefer": "wait=0"})).status_code == 200


async def test_streams_resume_without_gap_or_repeat(settings: GatewaySettings) -> None:
    seed = int(os.environ.get("SEED", "0")) or uuid.uuid4().int % 2**32
    print(f"SEED={seed}")  # noqa: T201  a random test prints its seed
    chance = random.Random(seed)  # noqa: S311  not for secrets
    async with running(settings) as surroundings, surroundings.raw() as raw:
        job_id = await surroundings.started_job()
        total = 300

        async def write() -> None:
            for number in range(total - 3):
                event = ev.StateCheckpointed(job_id=job_id, state_hash=str(number), as_of=number)
                copies = 2 if chance.random() < 0.2 else 1
                await surroundings.append(*[event] * copies, ids=[f"{job_id}-{number}"] * copies)
            await surroundings.append(ev.JobCompleted(job_id=job_id))

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
    async with running(settings) as surroundings, surroundings.client() as client:
        job_id = await surroundings.started_job()

        async def finish() -> None:
            await surroundings.append(ev.JobFailed(job_id=job_id, error="a failed"))

        finishing = asyncio.create_task(finish())
        followed = [event async for event in client.follow(job_id)]
        await finishing
        assert [event.type for event in followed] == ["job_created", "plan_generated", "job_failed"]
        job = await client.job(job_id)
        assert (job.status, job.error, job.ended) == ("failed", "a failed", True)
        assert await asyncio.to_thread(lambda: _follow_sync(surroundings, job_id)) == [2, 3]


def _follow_sync(surroundings: GatewaySurroundings, job_id: str) -> list[int]:
    with Client(surroundings.url, surroundings.tokens["ann"]) as client:
        return [event.seq for event in client.follow(job_id, after=1)]
