"""Requests that wait for their job's end."""

import asyncio
import contextlib
import gc
import uuid
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from aetheris.gateway.feed import JobFeed
from aetheris.gateway.settings import GatewaySettings
from aetheris.protocol.base.ids import job_id_of
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Submit
from tests.testkit.gateways import (
    PLAN,
    eventually,
    running,
    settings_of,
)

pytestmark = pytest.mark.real


@pytest.fixture
def settings(kafka: str, valkey_url: str, tmp_path: Path) -> GatewaySettings:
    return settings_of(kafka, valkey_url, tmp_path)


def listeners() -> int:
    """How many the gateway of this process has."""
    gc.collect()
    return sum(isinstance(one, JobFeed) for one in gc.get_objects())


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
    async with running(settings) as surroundings, surroundings.raw() as raw:
        for status, end_of in ENDS.items():
            key = uuid.uuid4().hex
            job_id = job_id_of(surroundings.tenant, key)
            first = waiting(raw, key)
            submit = (await surroundings.command(job_id, Submit)).body  # appended behind the subscription
            assert isinstance(submit, Submit)
            asked = [first, waiting(raw, key)]
            asked.append(asyncio.create_task(raw.get(f"/jobs/{job_id}", headers={"Prefer": "wait=600"})))
            await listening(3)
            creation_offset = await surroundings.bear(job_id, request_hash=submit.request_hash)
            assert not [one for one in asked if one.done()]
            await surroundings.append(end_of(job_id))
            answers = await asyncio.gather(*asked)
            assert [(one.status_code, one.json()["status"]) for one in answers] == [(200, status)] * 3
            applied = [one.headers["Preference-Applied"] for one in answers]
            assert applied == ["wait=45", "wait=45", "wait=60"]
            assert answers[0].json() == {"job_id": job_id, "status": status}
            assert answers[2].json()["steps"]
            # what ended before its waiters listened is seen in the list, once that has it
            late = [waiting(raw, key), asyncio.create_task(raw.get(f"/jobs/{job_id}", headers={"Prefer": "wait=45"}))]
            await listening(2)
            await surroundings.list_as(job_id, status, creation_offset, submit.request_hash)
            answers = await asyncio.gather(*late, waiting(raw, key))
            assert [(one.status_code, one.json()["status"]) for one in answers] == [(200, status)] * 3
        await listening(0)


async def test_a_wait_is_over_in_time_when_its_client_leaves_and_when_the_gateway_stops(
    settings: GatewaySettings,
) -> None:
    key = uuid.uuid4().hex
    async with contextlib.AsyncExitStack() as clients:
        async with running(settings) as surroundings:
            raw = await clients.enter_async_context(surroundings.raw())
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
            before = await surroundings.appended()
            for nonsense in ("wait", "wait=", "wait=soon", "wait=-1", "wait=1.5", f"wait={'9' * 5000}"):
                for asked in (
                    raw.post("/jobs", json={"plan": PLAN}, headers={"Prefer": nonsense}),
                    raw.get(f"/jobs/{job_id}", headers={"Prefer": nonsense}),
                ):
                    refused = await asked
                    assert (refused.status_code, refused.json()["error"]["details"]["field"]) == (400, "Prefer"), (
                        nonsense
                    )
            assert await surroundings.appended() == before
            last = waiting(raw, key)
            await listening(1)
        assert (await last).status_code == 202
