"""The lists that the gateway keeps in a real Valkey: whatever tenants are called, each has its own and no other's."""

import base64
import uuid
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path

import pytest

from aetheris.gateway.core.cursors import cursor_at, place_at
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
from tests.testkit.gateways import PLAN, running, settings_of

pytestmark = pytest.mark.real

TIME = "2026-01-01T00:00:00.000000Z"
NAMES = (
    *("a", "a:b", "b", "1:a", "*:a", "running:a", "a:running", "a|b", "1:a:running", "job:a"),
    *("", "*", "?", "[a]", "{a}", "a\x00", "a\x00b", " a", "a\n", "A", "\u00e9", "e\u0301", "\u202ea"),
    *("jobs", "asked", "epoch", "ending", "building:x", "effects:known", "ids:1:a", "nil", "x" * 5_000, "x" * 4_999),
)
"""What might be taken for a part of a key, a pattern, another name or a word of the views."""


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


async def test_a_claim_is_released_by_who_asked_for_the_same_only(views: Views, redis: Redis) -> None:
    assert await views.claim("j", "mine") is None
    await views.release("j", "others")
    await views.release("nobody", "mine")
    assert await views.claim("j", "others") == "mine", "who asked for something else leaves it"
    await views.release("j", "mine")
    assert (await redis.pipeline([("EXISTS", "aetheris:gateway:{lists}:request:j")]))[0] == 0
    assert await views.claim("j", "others") is None
    await views.release("j", "mine")
    assert await views.claim("j", "mine") == "others", "late, it takes nobody's place"


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


async def test_an_agents_name_is_compared_as_it_is_and_a_time_reaches_no_other_jobs(views: Views) -> None:
    for number, name in enumerate(NAMES):
        await views.put([replace(row(f"j-{number}", "acme", "running"), submitted_by=name)])
        await views.put([replace(row(f"k-{number}", "globex", "running"), submitted_by=name)])
    for number, name in enumerate(NAMES):
        page = await views.page("acme", JobQuery(agent=name), None, 200)
        assert [one.job_id for one in page.rows] == [f"j-{number}"]
    everything = len(NAMES)
    for year, count in ((1, everything), (500, everything), (1970, everything), (2026, everything), (2027, 0)):
        since = JobQuery(since=datetime(year, 1, 1, tzinfo=UTC))
        assert len((await views.page("acme", since, None, 200)).rows) == count
    first = await views.page("acme", JobQuery("running"), None, 1)
    for other in (JobQuery(), JobQuery("failed"), JobQuery("running", agent="a")):
        with pytest.raises(BadRequestProblem, match="cursor"):
            await views.page("acme", other, first.cursor, 1)


async def test_over_http_no_cursor_shows_anything_of_anothers_and_a_mangled_one_is_named(
    kafka: str, valkey_url: str, tmp_path: Path
) -> None:
    async with running(settings_of(kafka, valkey_url, tmp_path)) as world, world.client() as ann, world.raw() as raw:
        jobs = {(await ann.submit(PLAN)).job_id for _ in range(3)}
        await world.started_job()
        eve = {"authorization": f"Bearer {world.tokens['eve']}"}
        cursor = (await raw.get("/jobs", params={"limit": 1})).json()["cursor"]
        audit = (await raw.get("/audit", params={"limit": 1})).json()["cursor"]
        listed = JobQuery().subject
        for path, given in (("/jobs", cursor), ("/audit", audit), ("/approvals", cursor), ("/effects", cursor)):
            for wrong in (given, given[:-1], given + "A", given.lower(), "", "x", "\u00e9", "A" * 5_000, "{}", "*"):
                answer = await raw.get(path, params={"cursor": wrong}, headers=eve)
                assert (answer.status_code, answer.json()["error"]["details"]["field"]) == (400, "cursor"), (
                    path,
                    wrong,
                )
        assert (await raw.get("/undo", params={"cursor": cursor}, headers=eve)).status_code == 400
        place = place_at(cursor, world.tenant, listed)
        for forged in (place, "9999", "", "\x00", "(", "["):
            made_up = cursor_at(forged, f"not-{world.tenant}", listed)
            answer = await raw.get("/jobs", params={"cursor": made_up}, headers=eve)
            assert (answer.status_code, answer.json()) == (200, {"jobs": [], "cursor": None})
        for subject, path in (("accesses", "/audit"), (f"effects of {min(jobs)}", f"/effects?job_id={min(jobs)}")):
            made_up = cursor_at("no number", world.tenant, subject)
            answer = await raw.get(path, params={"cursor": made_up} | dict(_query(path)))
            assert (answer.status_code, answer.json()["error"]["details"]["field"]) == (400, "cursor")
        for tenant in ("", "*", world.tenant + "\x00", world.tenant.upper()):
            for job in jobs:
                answer = await raw.post(f"/jobs/{job}/cancel", json={"tenant": tenant or "x"}, headers=eve)
                assert answer.status_code == 404


def _query(path: str) -> Iterator[tuple[str, str]]:
    for pair in path.partition("?")[2].split("&"):
        if pair:
            name, _, value = pair.partition("=")
            yield name, value


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
    found: list[list[bytes]] = await redis.pipeline(
        [("KEYS", f"aetheris:gateway:{{effects}}:{kind}:*") for kind in KINDS]
    )
    return [key for some in found for key in some]


async def kept(redis: Redis) -> int:
    """How much all of them hold."""
    return sum(await redis.pipeline([("ZCARD", key) for key in await keys(redis)]))
