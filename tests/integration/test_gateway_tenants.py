"""The lists that the gateway keeps in a real Valkey: whatever tenants are called, each has its own and no other's."""

import base64
import uuid
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from itertools import permutations

import pytest

from aetheris.gateway.core.problems import BadRequestProblem, Unavailable
from aetheris.gateway.effect_index import NOBODYS_AFTER_MS, EffectIndex, EffectPlace
from aetheris.gateway.views import STATUSES, JobQuery, Row, Views
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import OpenRequest, ToolRelease
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.event_values import Outcome, Via
from aetheris.runtime.redis.client import Redis
from aetheris.testkit.clock import VirtualClock
from aetheris.testkit.memory import MemoryLog

pytestmark = pytest.mark.real

TIME = "2026-01-01T00:00:00.000000Z"
NAMES = ("a", "a:b", "b", "1:a", "*:a", "running:a", "a:running", "a|b", "1:a:running", "job:a")


@pytest.fixture
async def redis(valkey_url: str) -> AsyncGenerator[Redis]:
    redis = Redis(valkey_url)
    await redis.pipeline([("FLUSHALL",)])
    yield redis
    await redis.close()


@pytest.fixture
async def views(redis: Redis) -> Views:
    views = Views(redis)
    run = await views.begin("build")
    assert await views.complete("build", run)
    return views


def row(job_id: str, tenant: str, status: str) -> Row:
    asked = OpenRequest(id=f"{job_id}:x", node_id="n", kind="approval", title="t", offset=1, created_at=TIME)
    return Row(job_id, tenant, status, "r", "ann", TIME, birth=0, offset=1, requests=(asked,))


async def test_no_tenants_name_reaches_the_list_of_another(views: Views) -> None:
    jobs = {(tenant, status): uuid.uuid4().hex for tenant in NAMES for status in STATUSES}
    await views.put([row(job_id, tenant, status) for (tenant, status), job_id in jobs.items()])
    for tenant in NAMES:
        for status in STATUSES:
            page = await views.page(tenant, JobQuery(status), None, 200)
            assert [one.job_id for one in page.rows] == [jobs[tenant, status]]
        own = {jobs[tenant, status] for status in STATUSES}
        assert {one.job_id for one in (await views.page(tenant, JobQuery(), None, 200)).rows} == own
        assert {one.job_id for one, _ in (await views.asked(tenant, None, 200)).requests} == own


async def test_a_cursor_is_of_its_tenant_and_of_its_list(views: Views) -> None:
    await views.put(
        [row(f"{index}-{number}", name, "running") for index, name in enumerate(NAMES) for number in (1, 2)]
    )
    jobs = {name: (await views.page(name, JobQuery(), None, 1)).cursor for name in NAMES}
    asked = {name: (await views.asked(name, None, 1)).cursor for name in NAMES}
    for name in NAMES:
        (last,) = (await views.page(name, JobQuery(), jobs[name], 1)).rows
        assert last.tenant == name
        ((last, _),) = (await views.asked(name, asked[name], 1)).requests
        assert last.tenant == name
        with pytest.raises(BadRequestProblem, match="cursor"):
            await views.page(name, JobQuery(), asked[name], 1)
    for mine, others in permutations(NAMES, 2):
        with pytest.raises(BadRequestProblem, match="cursor"):
            await views.page(mine, JobQuery(), jobs[others], 1)
        with pytest.raises(BadRequestProblem, match="cursor"):
            await views.asked(mine, asked[others], 1)


def test_no_two_tenants_releases_have_one_key() -> None:
    def key(tenant: str, tool: str) -> str:
        return ToolRelease(tenant=tenant, tool=tool, by="ann", reason="r", at=TIME, below=()).key

    assert key("a:b", "c") != key("a", "b:c")


FOUND_FOR_S = 1000.0
KINDS = ("ids", "times")


class Listed:
    """Knows whose the jobs in the views are, and one old job."""

    def __init__(self, views: Views) -> None:
        self.listed_tenants = views.tenants

    async def tenant(self, job_id: str) -> str | None:
        return "a" if job_id == "old" else None


class Effects:
    """A log of births and effects, and the index over it."""

    def __init__(self, redis: Redis, views: Views) -> None:
        self.log, self.clock = MemoryLog(partitions=1), VirtualClock(datetime.fromtimestamp(0, UTC))
        self.index = EffectIndex(self.log, redis, Listed(views), self.clock, patience_s=10, found_for_s=FOUND_FOR_S)

    async def append(self, *event: ev.Event) -> None:
        appender = self.log.appender()
        await appender.start()
        records = [
            draft(Topic.JOBS_EVENTS, one, key=one.job_id, id=uuid.uuid4().hex, source="t", time=TIME) for one in event
        ]
        await appender.append([(record,) for record in records])
        await appender.stop()


def birth(job_id: str, tenant: str) -> ev.JobCreated:
    return ev.JobCreated(job_id=job_id, tenant=tenant, submitted_by="ann", request_hash="r")


def effect(job_id: str, external_id: str) -> ev.ToolInvocationFinished:
    return ev.ToolInvocationFinished(
        job_id=job_id,
        node_id="n",
        idempotency_key="k",
        invocation_id="i",
        outcome=Outcome.SUCCESS,
        via=Via.EXECUTOR,
        output_hash="0",
        external_id=external_id,
    )


@pytest.fixture
def effects(redis: Redis, views: Views) -> Effects:
    return Effects(redis, views)


async def everything(effects: Effects, tenant: str) -> tuple[list[EffectPlace], list[str]]:
    """A tenant's effects, page by page, and the cursors that led through them."""
    found: list[EffectPlace] = []
    cursors: list[str] = []
    page, cursor = await effects.index.newest(tenant, 0, None, 2)
    while True:
        found += page
        if cursor is None:
            return found, cursors
        cursors.append(cursor)
        page, cursor = await effects.index.newest(tenant, 0, cursor, 2)


async def test_pages_of_effects_hold_ones_own_and_their_cursors_name_nobody_elses(
    redis: Redis, views: Views, effects: Effects
) -> None:
    """A page of one's own is full, and leads on at one's own: not even how much others do is seen."""
    for number in range(20):
        for name in ("a", "a:b"):
            await effects.append(birth(f"{name[-1]}-{number}", name), effect(f"{name[-1]}-{number}", "re_same"))
    for mine, other in (("a", "b-"), ("a:b", "a-")):
        found, cursors = await everything(effects, mine)
        assert len({one.job_id for one in found}) == 20 == len(found)
        assert len(cursors) == 9
        places = [base64.urlsafe_b64decode(cursor + "==") for cursor in cursors]
        assert not any(other.encode() in place for place in (*places, *(one.job_id.encode() for one in found)))
        assert len(await effects.index.by_external_id(mine, "re_same")) == 20
    _, cursor = await effects.index.newest("a", 0, None, 2)
    with pytest.raises(BadRequestProblem, match="cursor"):
        await effects.index.newest("a:b", 0, cursor, 2)
    await effects.append(effect("old", "re_old"))
    assert [one.job_id for one in await effects.index.by_external_id("a", "re_old")] == ["old"]
    assert await effects.index.by_external_id("a:b", "re_old") == []
    later = EffectIndex(
        effects.log, redis, Listed(views), effects.clock, patience_s=10, found_for_s=FOUND_FOR_S
    )  # read on behind the births
    await views.put([row("a-0", "a", "running")])
    await effects.append(effect("a-0", "re_late"))
    assert [one.job_id for one in await later.by_external_id("a", "re_late")] == ["a-0"]


@pytest.mark.parametrize("age_ms", [0, NOBODYS_AFTER_MS + 60_000])
async def test_an_effect_of_a_job_that_is_not_known_yet_is_waited_for_and_an_old_one_is_nobodys(
    views: Views, effects: Effects, age_ms: int
) -> None:
    await effects.append(birth("known", "a"), effect("known", "re_1"), effect("stray", "re_2"))
    if age_ms:
        await effects.clock.advance(age_ms / 1000)
        assert [one.job_id for one in await effects.index.by_external_id("a", "re_1")] == ["known"]
        return
    with pytest.raises(Unavailable):
        await effects.index.by_external_id("a", "re_1")
    await views.put([row("stray", "b", "running")])
    assert [one.job_id for one in await effects.index.by_external_id("b", "re_2")] == ["stray"]
    assert await effects.index.by_external_id("a", "re_2") == []


async def test_effects_are_listed_for_a_time_and_then_nothing_of_them_is_kept(redis: Redis, effects: Effects) -> None:
    """Of the tenant who goes on, as he goes on; of one who does not, as a whole."""
    for number in range(300):
        await effects.append(birth(f"a-{number}", "a"), effect(f"a-{number}", f"re_{number}"))
    await effects.append(birth("b-1", "b"), effect("b-1", "re_b"))
    assert len(await effects.index.by_external_id("a", "re_7")) == 1
    assert await kept(redis) == 2 * 301
    await effects.clock.advance(FOUND_FOR_S + 3600)
    effects.log.pass_time(round((FOUND_FOR_S + 3600) * 1000))
    assert await effects.index.newest("a", 0, None, 10) == ([], None)
    for number in range(3):
        await effects.append(birth(f"new-{number}", "a"), effect(f"new-{number}", f"re_new_{number}"))
        found, _ = await effects.index.newest("a", 0, None, 10)
        assert [one.job_id for one in found] == [f"new-{at}" for at in range(number, -1, -1)]
    assert await effects.index.by_external_id("a", "re_7") == []
    assert await kept(redis) == 2 * (3 + 1)
    lasts_ms = await redis.pipeline([("PTTL", key) for key in await keys(redis)])
    assert all(0 < lasts <= FOUND_FOR_S * 1000 for lasts in lasts_ms)


async def keys(redis: Redis) -> list[bytes]:
    """The lists of effects, of whatever tenant."""
    found: list[list[bytes]] = await redis.pipeline([("KEYS", f"aetheris:gateway:effects:{kind}:*") for kind in KINDS])
    return [key for some in found for key in some]


async def kept(redis: Redis) -> int:
    """How much all of them hold."""
    return sum(await redis.pipeline([("ZCARD", key) for key in await keys(redis)]))
