"""The lists hold what is not sealed, and what was sealed lately; its id finds a job of whatever age. Real parts."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis as redis_client

from aetheris.gateway.feed import Feed
from aetheris.gateway.index import JobIndex
from aetheris.gateway.job_rows import JobRows
from aetheris.gateway.settings import GatewaySettings
from aetheris.gateway.untaken import Untaken
from aetheris.gateway.views import Row, Views, ViewsLost
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import JobIndexEntry
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.log.history import JobLogReader
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.redis.client import Redis
from aetheris.sdk.client import ResourceNotFound
from aetheris.testkit.memory import MemoryLog
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.gateways import (
    DEADLINE_S,
    PARTITIONS,
    PLAN,
    TIME,
    GatewaySurroundings,
    eventually,
    running,
    settings_of,
)
from tests.testkit.proof_histories import TENANT
from tests.testkit.rig import Rig, poke, running_rig
from tests.testkit.stored_jobs import StoredJob, stored_job

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(240)]

LISTED_S = 2.0
DAYS_S = 30 * 86400.0


async def store(world: GatewaySurroundings, job: StoredJob) -> JobIndexEntry:
    """A job in the log, and what its line says once it is sealed; before that it is running."""
    place = (str(Topic.JOBS_EVENTS), partition_of(job.id, PARTITIONS))
    at = (await world.log.end_offsets([place]))[place]
    time = ("ce_time", TIME.encode())
    drafts = [Draft(place[0], job.id.encode(), record.value, (*record.headers, time)) for record in job.records]
    await world.appender.append([(one,) for one in drafts])
    line = JobIndexEntry(
        job_id=job.id,
        birth=at,
        request_hash="r",
        status="running",
        tenant=TENANT,
        submitted_by="me",
        created_at=TIME,
    )
    await world.say(Topic.JOBS_INDEX, job.id, line)
    return line.model_copy(update={"status": "completed", "stretches": ((at, at + len(drafts)),)})


async def listed(world: GatewaySurroundings, **params: Any) -> list[str]:
    """All jobs of all pages."""
    found: list[str] = []
    async with world.client() as client:
        page = await client.jobs(limit=3, **params)
        while True:
            found += [job.job_id for job in page.jobs]
            if page.cursor is None:
                return found
            page = await client.jobs(limit=3, cursor=page.cursor, **params)


async def keys_about(redis: Redis, job_id: str) -> list[str]:
    """Whatever Redis holds of a job in the gateway's views."""
    (keys,) = await redis.pipeline([("KEYS", "aetheris:gateway:*")])
    found = [key.decode() for key in keys if job_id in key.decode() and b":request:" not in key]
    for key in keys:
        (kind,) = await redis.pipeline([("TYPE", key)])
        if kind in (b"zset", "zset"):
            (members,) = await redis.pipeline([("ZRANGE", key, 0, -1)])
            found += [key.decode() for member in members if job_id.encode() in member]
    return found


@pytest.fixture
def settings(kafka: str, valkey_url: str, tmp_path: Path) -> GatewaySettings:
    return settings_of(kafka, valkey_url, tmp_path, listed_for_s=LISTED_S)


async def test_a_sealed_job_leaves_the_lists_and_redis_and_is_shown_as_before(settings: GatewaySettings) -> None:
    job, other = stored_job(), stored_job()
    async with running(settings, TENANT) as world, world.raw() as raw, world.client("eve") as eve:
        line, ends_unsealed = await store(world, job), await store(world, other)
        await eventually(lambda: _all_listed(world, job.id, other.id))
        before = [(await raw.get(f"/jobs/{job.id}{path}")).json() for path in ("", "/events", "/effects", "/trace")]
        await world.say(Topic.JOBS_INDEX, other.id, ends_unsealed.model_copy(update={"stretches": ()}))
        await world.say(Topic.JOBS_INDEX, job.id, line)
        await eventually(lambda: _is_out(world, job.id))
        for status in (None, "running", "completed"):
            assert job.id not in await listed(world, status=status)
        assert other.id in await listed(world, status="completed"), "it has ended, and is not sealed"
        after = [(await raw.get(f"/jobs/{job.id}{path}")).json() for path in ("", "/events", "/effects", "/trace")]
        assert after == before
        with pytest.raises(ResourceNotFound):
            await eve.job(job.id)
        with pytest.raises(ResourceNotFound):
            await eve.events(job.id)
        # Redis loses everything: what is over does not come back, and is found all the same.
        await world.redis.pipeline([("FLUSHALL",)])
        await eventually(lambda: _all_listed(world, other.id))
        assert await keys_about(world.redis, job.id) == []
        assert (await raw.get(f"/jobs/{job.id}")).json() == before[0]
    async with running(settings, TENANT) as world, world.raw() as raw:
        assert (await raw.get(f"/jobs/{job.id}")).json() == before[0]
        assert job.id not in await listed(world)


async def _is_out(world: GatewaySurroundings, job_id: str) -> bool:
    return await keys_about(world.redis, job_id) == []


async def _all_listed(world: GatewaySurroundings, *job_ids: str) -> bool:
    async with world.raw() as raw:
        if (await raw.get("/jobs")).status_code != 200:
            return False
    return set(job_ids) <= set(await listed(world))


async def test_what_stays_is_listed_without_gap_or_repeat_while_others_go(settings: GatewaySettings) -> None:
    async with running(settings, TENANT) as world:
        stay, go = [stored_job() for _ in range(8)], [stored_job() for _ in range(8)]
        lines = [await store(world, job) for pair in zip(stay, go, strict=True) for job in pair]
        await eventually(lambda: _all_listed(world, *(job.id for job in (*stay, *go))))
        for line in lines[1::2]:
            await world.say(Topic.JOBS_INDEX, line.job_id, line)
        mine = {job.id for job in (*stay, *go)}
        seen: list[str] = []
        async with asyncio.timeout(DEADLINE_S):
            while set(seen) != {job.id for job in stay}:
                seen = [job_id for job_id in await listed(world) if job_id in mine]
                assert len(seen) == len(set(seen))
                assert {job.id for job in stay} <= set(seen)


async def test_a_repeat_of_an_old_submission_is_no_new_job(settings: GatewaySettings) -> None:
    async with running(settings, TENANT) as world, world.raw() as raw:
        key = fresh("key")
        first = (await raw.post("/jobs", json={"plan": PLAN}, headers={"Idempotency-Key": key})).json()
        (command,) = [one.body for one in await world.commands(first["job_id"])]
        request_hash: str = command.request_hash  # pyright: ignore[reportAttributeAccessIssue]
        creation = await world.bear(first["job_id"], index=False)
        line = JobIndexEntry(
            job_id=first["job_id"],
            birth=creation,
            request_hash=request_hash,
            status="failed",
            tenant=TENANT,
            submitted_by="ann",
            created_at=TIME,
            stretches=((creation, creation + 2),),
        )
        await world.say(Topic.JOBS_INDEX, line.job_id, line)
        await eventually(lambda: _is_out(world, line.job_id))
        await world.redis.pipeline(
            [("DEL", f"aetheris:gateway:{{lists}}:request:{line.job_id}")]
        )  # its time is over, too
        commands = await world.appended()
        again = await raw.post("/jobs", json={"plan": PLAN}, headers={"Idempotency-Key": key})
        assert again.json() == {"job_id": line.job_id, "status": "failed"}
        other = {"nodes": [{"id": "b", "tool": "gw.pay", "args": {"amount": 2}}]}
        refused = await raw.post("/jobs", json={"plan": other}, headers={"Idempotency-Key": key})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "idempotency_conflict")
        assert await world.appended() == commands


class Recording(Views):
    """Keeps the rows that were put."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis)
        self.kept: list[Row] = []

    async def put(self, rows: Sequence[Row]) -> None:
        self.kept += rows
        await super().put(rows)


async def write_lines(log: MemoryLog, *lines: JobIndexEntry) -> None:
    appender = log.appender()
    await appender.start()
    drafts = [
        draft(Topic.JOBS_INDEX, line, key=line.job_id, id=uuid.uuid4().hex, source="t", time="now") for line in lines
    ]
    await appender.append([(one,) for one in drafts])
    await appender.stop()


def line_of_job(status: str = "running", *, sealed: bool = False, job_id: str = "old") -> JobIndexEntry:
    said = {"job_id": job_id, "birth": 0, "request_hash": "r", "status": status, "tenant": TENANT, "submitted_by": "me"}
    stretches = ((0, 9),) if sealed else ()
    return JobIndexEntry.model_validate(said | {"created_at": "2026-01-01T00:00:00Z", "stretches": stretches})


@contextlib.asynccontextmanager
async def built(log: MemoryLog, views: Views, listed_for_s: float) -> AsyncGenerator[JobIndex]:
    """An index that has read the log."""
    index = JobIndex(log, views, SystemClock(), listed_for_s)
    running_index = asyncio.create_task(index.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            while index.unready() is not None:  # noqa: ASYNC110  it tells nobody
                await asyncio.sleep(0.01)
        yield index
    finally:
        running_index.cancel()
        await asyncio.wait({running_index})


@pytest.fixture
async def redis(valkey_url: str) -> AsyncGenerator[Redis]:
    redis = Redis(valkey_url)
    await redis.pipeline([("FLUSHALL",)])
    yield redis
    await redis.close()


async def test_who_builds_the_views_anew_brings_no_old_job_back_not_even_for_a_moment(redis: Redis) -> None:
    """Another gateway serves them meanwhile. (Records of a MemoryLog are as old as 1970.)"""
    log, views = MemoryLog(partitions=1), Recording(redis)
    await write_lines(
        log, line_of_job(), line_of_job(job_id="live"), line_of_job("completed"), line_of_job("completed", sealed=True)
    )
    async with built(log, views, DAYS_S) as index:
        assert {row.job_id for row in views.kept} == {"live"}
        assert index.line("old") is not None
        assert index.line("live") is None


async def test_a_row_that_was_left_behind_is_taken_out_whatever_it_said(redis: Redis) -> None:
    """It was written by a gateway that died before the job was sealed."""
    log, views = MemoryLog(partitions=1), Recording(redis)
    await views.put([Row("old", TENANT, "running", "r", "me", "2026-01-01T00:00:00Z", birth=0, offset=0)])
    assert await keys_about(redis, "old") != []
    await write_lines(log, line_of_job(), line_of_job("completed", sealed=True))
    async with built(log, views, DAYS_S):
        assert await keys_about(redis, "old") == []


async def test_a_late_line_of_before_the_seal_lists_nothing_again(redis: Redis) -> None:
    log, views = MemoryLog(partitions=1), Recording(redis)
    await write_lines(log, line_of_job("completed", sealed=True), line_of_job("running"))
    async with built(log, views, DAYS_S):
        assert views.kept == []


async def test_of_lines_that_arrive_together_the_last_of_each_job_is_written(redis: Redis) -> None:
    log, views = MemoryLog(partitions=1), Recording(redis)
    await write_lines(log, line_of_job(), line_of_job(job_id="live"), line_of_job("waiting"), line_of_job("completed"))
    async with built(log, views, DAYS_S):
        assert [(row.job_id, row.status, row.offset) for row in views.kept] == [
            ("old", "completed", 3),
            ("live", "running", 1),
        ]
        found = await views.job("old")
        assert found is not None
        assert found.status == "completed"


async def test_rows_that_end_leave_nothing_behind_however_many_there_were(redis: Redis) -> None:
    views = Views(redis)
    now_ms = 1_000_000
    rows = [
        Row(
            f"job-{at}",
            f"tenant-{at % 3}",
            "completed",
            "r",
            "me",
            f"2026-01-01T00:00:{at % 60:02}Z",
            ends_ms=now_ms + at,
        )
        for at in range(1_200)
    ]
    await views.put(rows)
    (full,) = await redis.pipeline([("DBSIZE",)])
    assert full > 1_200
    await views.sweep(now_ms + 599)
    assert (await redis.pipeline([("ZCARD", "aetheris:gateway:{lists}:ending")]))[0] == 600
    await views.sweep(now_ms + 2_000)
    (left,) = await redis.pipeline([("DBSIZE",)])
    assert left == 0


async def test_a_job_is_never_unknown_before_the_index_was_read(redis: Redis) -> None:
    """The views are whole, by another gateway; an old job is not in them."""
    log, views = MemoryLog(partitions=1), Views(redis)
    assert await views.complete("build", await views.begin("build"))
    await write_lines(log, line_of_job("completed", sealed=True))
    feed = Feed(log, SystemClock(), 0.1)
    await feed.start()
    index, history = JobIndex(log, views, SystemClock(), DAYS_S), JobLogReader(log)
    rows = JobRows(views=views, index=index, untaken=Untaken(log), history=history, feed=feed)
    for ask in (rows.find, rows.listed):
        with pytest.raises(ViewsLost):
            await ask("nobody")
    running_index = asyncio.create_task(index.run())
    async with asyncio.timeout(DEADLINE_S):
        while index.unready() is not None:  # noqa: ASYNC110  it tells nobody
            await asyncio.sleep(0.01)
    assert await rows.find("nobody") is None
    running_index.cancel()
    await asyncio.wait({running_index})
    await history.close()


@pytest.fixture
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_rig(tmp_path_factory.mktemp("listed"), {"AETHERIS_LISTED_FOR_S": "1"}) as rig:
        yield rig


def test_a_running_system_forgets_sealed_jobs_in_its_lists_and_nowhere_else(rig: Rig) -> None:
    system = rig.system
    job_id = system.completed(poke("one", fresh("listed")))
    system.wait_sealed(job_id)
    effect = next(one for one in rig.external.effects() if one["key"] == f"aetheris:{job_id}:one:0")

    def is_over() -> bool:
        with redis_client.Redis.from_url(system.state().redis) as client:
            return client.exists(f"aetheris:gateway:{{lists}}:job:{job_id}") == 0

    until(is_over, 60)
    assert job_id not in {job["job_id"] for job in system.api.get("/jobs", params={"limit": 200}).json()["jobs"]}
    assert system.job(job_id)["status"] == "completed"
    assert system.verified(job_id)["seal"]["ok"]
    found = system.api.get("/effects", params={"external_id": effect["id"]}).json()["effects"]
    assert [one["facts"]["job_id"] for one in found] == [job_id]
    assert system.api.get(f"/jobs/{job_id}/evidence").status_code == 200
