"""What people ask of a job, answered by its log."""

import asyncio
from pathlib import Path

import pytest

from aetheris.gateway.settings import GatewaySettings
from aetheris.protocol.base.keys import external_key
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Cancel, Resolve
from aetheris.sdk.client import (
    Conflict,
    Forbidden,
    ResourceNotFound,
)
from tests.testkit import histories as h
from tests.testkit.gateways import (
    running,
    settings_of,
)

pytestmark = pytest.mark.real


@pytest.fixture
def settings(kafka: str, valkey_url: str, tmp_path: Path) -> GatewaySettings:
    return settings_of(kafka, valkey_url, tmp_path)


async def test_cancel_is_answered_by_the_log(settings: GatewaySettings) -> None:
    async with running(settings) as surroundings, surroundings.raw() as raw:
        job_id = await surroundings.started_job()
        asking = asyncio.create_task(raw.post(f"/jobs/{job_id}/cancel", json={"reason": "enough"}))
        command = await surroundings.command(job_id, Cancel)
        body = command.body
        assert isinstance(body, Cancel)
        assert (body.by, body.tenant, body.reason) == ("ann", surroundings.tenant, "enough")
        await surroundings.append(ev.CancelRequested(job_id=job_id, by="ann", caused_by=command.id))
        answer = await asking
        assert (answer.status_code, answer.json()["event"]) == (200, "cancel_requested")
        again = await raw.post(f"/jobs/{job_id}/cancel")
        assert again.status_code == 200
        await surroundings.append(ev.JobCancelled(job_id=job_id, by="ann"))
        assert (await raw.get(f"/jobs/{job_id}")).json()["status"] == "cancelled"


async def test_cancel_of_what_has_ended_is_refused(settings: GatewaySettings) -> None:
    async with running(settings) as surroundings, surroundings.client() as client:
        job_id = await surroundings.started_job()
        racing = asyncio.create_task(client.cancel(job_id))
        await surroundings.command(job_id, Cancel)
        await surroundings.append(ev.JobCompleted(job_id=job_id))
        with pytest.raises(Conflict):
            await racing
        before = await surroundings.appended()
        with pytest.raises(Conflict) as refused:
            await client.cancel(job_id)
        assert refused.value.code == "illegal_transition"
        assert await surroundings.appended() == before


async def test_without_an_answer_it_is_202(settings: GatewaySettings) -> None:
    async with running(settings) as surroundings, surroundings.raw() as raw:
        job_id = await surroundings.started_job()
        answer = await raw.post(f"/jobs/{job_id}/cancel")
        assert (answer.status_code, answer.json()["event"]) == (202, None)


async def test_a_human_resolves_what_is_parked(settings: GatewaySettings) -> None:
    async with (
        running(settings) as surroundings,
        surroundings.client("bob") as client,
        surroundings.client() as submitter,
    ):
        job_id = await surroundings.started_job()
        of_job = {"job_id": job_id}
        started = h.started("a", "n1").model_copy(update={**of_job, "external_key": external_key(job_id, "a", 0)})
        await surroundings.append(started)
        step = (await client.job(job_id)).steps[0]
        assert (step.state, step.attempts) == ("running", 1)
        assert step.execution_id is not None
        with pytest.raises(Conflict):
            await client.resolve(job_id, step.execution_id, "not_executed", evidence="looked")
        with pytest.raises(ResourceNotFound):
            await client.resolve(job_id, "no-such", "happened", evidence="looked")
        parked = h.about(ev.InvocationParked, "a", invocation_id="n1", reason="opaque").model_copy(update=of_job)
        await surroundings.append(parked)
        job = await client.job(job_id)
        assert (job.status, job.steps[0].state) == ("waiting", "waiting")
        assert job.why is not None
        before = await surroundings.appended()
        for verdict in ("happened", "not_executed", "retry"):
            with pytest.raises(Forbidden, match="who submitted the job may not resolve"):
                await submitter.resolve(job_id, step.execution_id, verdict, evidence="mine")
        assert await surroundings.appended() == before
        asking = asyncio.create_task(
            client.resolve(job_id, step.execution_id, "happened", evidence="seen", result={"id": 7})
        )
        command = await surroundings.command(job_id, Resolve)
        settled = h.finished("a", "n1", via="human", result={"id": 7})
        await surroundings.append(settled.model_copy(update={**of_job, "caused_by": command.id}))
        assert (await asking).event == "tool_invocation_finished"
        assert (await client.job(job_id)).steps[0].state == "completed"
        with pytest.raises(Conflict):
            await client.resolve(job_id, step.execution_id, "retry", evidence="again")
