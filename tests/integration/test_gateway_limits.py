"""What a tenant may ask for, at a gateway that listens: who is beyond it is told, and others feel nothing of it."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from aetheris.protocol.messages.commands import Submit
from aetheris.sdk.client import Submitted, TooManyRequests
from tests.testkit.gateways import DEADLINE_S, PLAN, GatewaySurroundings, eventually, running, settings_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(2 * DEADLINE_S)]

LIMITS = """
[tenant]
open_jobs = 2
[token]
requests_per_s = 200
"""


@pytest.fixture
async def world(kafka: str, valkey_url: str, tmp_path: Path) -> AsyncGenerator[GatewaySurroundings]:
    (tmp_path / "limits.toml").write_text(LIMITS)
    async with running(settings_of(kafka, valkey_url, tmp_path, limits=tmp_path / "limits.toml")) as world:
        yield world


async def test_a_tenant_that_has_as_many_open_jobs_as_it_may_is_told_and_another_is_not(
    world: GatewaySurroundings,
) -> None:
    async with world.client() as ann, world.client("bob") as bob, world.client("eve") as eve:
        first = (await ann.submit(PLAN, idempotency_key="first")).job_id
        second = (await bob.submit(PLAN)).job_id
        for refused in (ann.submit(PLAN), bob.submit(PLAN, idempotency_key="later")):
            with pytest.raises(TooManyRequests) as found:
                await refused
            assert (found.value.details["limit"], found.value.retry_after_s) == ("tenant.open_jobs", 10)
        assert (await ann.submit(PLAN, idempotency_key="first")).job_id == first  # a repeat is no new job
        assert (await eve.submit(PLAN)).job_id
        assert (await ann.limits())["open_jobs"]["submitted"] == 2
        await world.list_as(second, "completed", 0)

        async def has_room() -> bool:
            return sum((await ann.limits())["open_jobs"].values()) == 1

        await eventually(has_room)

        async def is_taken() -> bool:
            try:
                return bool((await bob.submit(PLAN, idempotency_key="later")).job_id)
            except TooManyRequests:
                return False

        await eventually(is_taken)  # it is counted once a second
        later = (await bob.submit(PLAN, idempotency_key="later")).job_id
        assert len([one for one in await world.commands(later) if isinstance(one.body, Submit)]) == 1


async def test_who_asks_too_often_is_refused_with_the_seconds_to_wait(world: GatewaySurroundings) -> None:
    async with world.raw() as raw:
        answers = [(await raw.get("/tools")) for _ in range(3)]
        assert {one.status_code for one in answers} == {200}
    shown = await _limits(world)
    assert shown["token.requests_per_s"]["limit"] == 200
    assert shown["tenant.jobs_per_s"] == {"name": "tenant.jobs_per_s", "limit": None, "left": None}


async def test_a_repeat_is_laid_into_the_log_and_counts_as_a_submission(
    kafka: str, valkey_url: str, tmp_path: Path
) -> None:
    (tmp_path / "limits.toml").write_text("[token]\njobs_per_s = 1")
    async with (
        running(settings_of(kafka, valkey_url, tmp_path, limits=tmp_path / "limits.toml")) as world,
        world.client() as ann,
    ):
        submitting = (ann.submit(PLAN, idempotency_key="one") for _ in range(12))
        found = [await asyncio.gather(one, return_exceptions=True) for one in submitting]
        refused = [one.details["limit"] for (one,) in found if isinstance(one, TooManyRequests)]
        taken = {one.job_id for (one,) in found if isinstance(one, Submitted)}
        assert set(refused) == {"token.jobs_per_s"}
        assert (len(taken), len(refused) >= 4) == (1, True)


async def _limits(world: GatewaySurroundings) -> dict[str, dict[str, object]]:
    async with world.client() as ann:
        return {one["name"]: one for one in (await ann.limits())["limits"]}
