"""Jobs read through the gateway: pages, tenants, and the list in Redis lost and built again."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from aetheris.gateway.settings import GatewaySettings
from aetheris.sdk.client import (
    AsyncClient,
    JobEvent,
    ResourceNotFound,
    Unauthorized,
)
from tests.testkit.gateways import (
    DEADLINE_S,
    PLAN,
    VIEW,
    eventually,
    running,
    settings_of,
)

pytestmark = pytest.mark.real


@pytest.fixture
def settings(kafka: str, valkey_url: str, tmp_path: Path) -> GatewaySettings:
    return settings_of(kafka, valkey_url, tmp_path)


async def test_pages_are_newest_first_without_gap_or_repeat(settings: GatewaySettings) -> None:
    async with running(settings) as surroundings, surroundings.client() as client:
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
        await surroundings.list_as(made[0], "completed", await surroundings.bear(made[0]))

        async def moved() -> bool:
            done = {job.job_id for job in (await client.jobs(status="completed", limit=200)).jobs}
            open_ = {job.job_id for job in (await client.jobs(status="submitted", limit=200)).jobs}
            return made[0] in done and made[0] not in open_

        await eventually(moved)


async def test_who_may_see_what(settings: GatewaySettings) -> None:
    async with running(settings) as surroundings, surroundings.client() as ann, surroundings.client("eve") as eve:
        job_id = (await ann.submit(PLAN)).job_id
        async with surroundings.client("nobody") as nobody:
            for call in (nobody.job(job_id), nobody.submit(PLAN), nobody.tools(), nobody.cancel(job_id)):
                with pytest.raises(Unauthorized):
                    await call
        before = await surroundings.appended()
        for call in (eve.job(job_id), eve.events(job_id), eve.cancel(job_id), eve.verify(job_id), ann.job("no-such")):
            with pytest.raises(ResourceNotFound) as missing:
                await call
            assert missing.value.code == "unknown_job"
        assert [event async for event in _first(eve, job_id)] == []
        assert job_id not in {job.job_id for job in (await eve.jobs()).jobs}
        assert await surroundings.appended() == before


async def _first(client: AsyncClient, job_id: str) -> AsyncGenerator[JobEvent]:
    with contextlib.suppress(ResourceNotFound):
        async for event in client.follow(job_id):
            yield event


async def test_lost_views_are_never_a_404(settings: GatewaySettings) -> None:
    async with running(settings) as surroundings, surroundings.raw() as raw, surroundings.client() as client:
        indexed = await surroundings.started_job()
        submitted = (await client.submit(PLAN)).job_id

        async def listed() -> bool:
            return indexed in {job.job_id for job in (await client.jobs(status="running", limit=200)).jobs}

        await eventually(listed)
        reported: list[int] = []
        async with asyncio.timeout(DEADLINE_S):
            while reported.count(503) < 3:  # the rebuild may be over before the first request
                await surroundings.redis.pipeline([("FLUSHALL",)])
                reported.append(0)
                while reported[-1] != 200:
                    answer = await raw.get(f"/jobs/{indexed}")
                    reported.append(answer.status_code)
                    assert answer.status_code == 200 or int(answer.headers["retry-after"]) >= 1
                reported.append((await raw.get(f"/jobs/{submitted}")).status_code)
                reported.append((await raw.get("/jobs")).status_code)
        assert set(reported) == {0, 200, 503}
        assert (await client.job(submitted)).status == "submitted"
        assert {indexed, submitted} <= {job.job_id for job in (await client.jobs(limit=200)).jobs}


async def test_views_of_another_run_of_redis_are_built_again(settings: GatewaySettings) -> None:
    async with running(settings) as surroundings, surroundings.raw() as raw:
        job_id = await surroundings.started_job()
        # A restarted server keeps the epoch, but has another run id: the last second of writes may be gone.
        await surroundings.redis.pipeline(
            [("SET", "aetheris:gateway:{lists}:epoch", "another-run"), ("DEL", f"{VIEW}{job_id}")]
        )
        reported: list[int] = []
        async with asyncio.timeout(DEADLINE_S):
            while not reported or reported[-1] != 200:
                reported.append((await raw.get(f"/jobs/{job_id}")).status_code)
        assert set(reported) <= {503, 200}
