"""What every adapter's calls go through, on a gateway that is played (docs/agents.md)."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from aetheris.protocol.base.ids import job_id_of
from aetheris.sdk.call_port import CallableTool, CallPort, CallRefused, StillRunning, callable_tools
from aetheris.sdk.client import AsyncClient, Job, ResourceNotFound, Submitted

PAY = CallableTool("pay", "", {"type": "object"})
LOOK = CallableTool("look", "", {"type": "object"}, only_reads=True)


@dataclass
class PlayedClient:
    """Each key is a job, which ends when `end` says how."""

    steps: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    asked: list[str] = field(default_factory=list[str])

    async def submit(self, _plan: Any, *, idempotency_key: str, **_more: Any) -> Submitted:
        job_id = job_id_of("", idempotency_key)
        if job_id not in self.steps:
            self.asked.append(job_id)
            self.steps[job_id] = {"state": "running"}
        return Submitted(job_id=job_id, status=self._status(job_id))

    async def job(self, job_id: str) -> Job:
        if job_id not in self.steps:
            raise ResourceNotFound("unknown_job", "no such job")
        step = {"node_id": "call", "tool": "pay", **self.steps[job_id]}
        result = {"call": {"n": self.asked.index(job_id)}} if step["state"] == "completed" else None
        named = {
            "job_id": job_id,
            "created_at": "",
            "submitted_by": "",
            "tenant": "",
            "steps": [step],
            "result": result,
        }
        return Job.model_validate({**named, "status": self._status(job_id)})

    async def follow(self, job_id: str) -> AsyncGenerator[None]:
        while self.steps[job_id]["state"] == "running":  # noqa: ASYNC110 - the test ends it
            await asyncio.sleep(0)
        return
        yield

    def end(self, state: str = "completed", **more: Any) -> None:
        """How the last job ends."""
        self.steps[self.asked[-1]] = {"state": state, **more}

    def _status(self, job_id: str) -> str:
        return self.steps[job_id]["state"]


def port(client: PlayedClient, run: str = "r", **how: Any) -> CallPort:
    return CallPort(cast("AsyncClient", client), run, **how)


async def test_what_was_still_running_is_what_the_next_equal_call_is_told_also_that_it_failed() -> None:
    client = PlayedClient()
    calls = port(client)
    for _ in range(2):
        with pytest.raises(StillRunning):
            await calls.call(PAY, {}, within_s=0.01)
    client.end("failed", effect="none", reason="said no")
    told = await calls.call(PAY, {}, within_s=0.01)
    assert (told.succeeded, told.earlier, "said no" in told.failure) == (False, False, True)
    assert len(client.asked) == 1, "a human's no is no reason to ask him again unheard"
    with pytest.raises(StillRunning):
        await calls.call(PAY, {}, within_s=0.01)
    assert len(client.asked) == 2, "and what is called once more, after it was told, is a new try"


async def test_a_port_that_starts_anew_joins_what_runs_and_takes_what_is_done() -> None:
    client = PlayedClient()
    with pytest.raises(StillRunning):
        await port(client).call(PAY, {}, within_s=0.01)
    with pytest.raises(StillRunning):
        await port(client).call(PAY, {}, within_s=0.01)
    client.end()
    assert (await port(client).call(PAY, {})).earlier
    assert not (await port(client).outcome(client.asked[0])).earlier
    with pytest.raises(StillRunning):
        await port(client, "other").call(PAY, {}, within_s=0.01)
    assert len(client.asked) == 2


async def test_what_only_reads_is_joined_while_it_runs_and_read_anew_afterwards() -> None:
    client = PlayedClient()
    calls = port(client, reads="start-1")
    for expected in range(3):
        with pytest.raises(StillRunning):
            await calls.call(LOOK, {}, within_s=0.01)
        client.end()
        assert (await calls.call(LOOK, {})).result == {"n": expected}
    with pytest.raises(StillRunning):
        await port(client, reads="start-2").call(LOOK, {}, within_s=0.01)
    assert len(client.asked) == 4, "a start finds no read of an earlier one"


async def test_what_is_begun_without_waiting_is_one_call_too() -> None:
    client = PlayedClient()
    calls = port(client)
    assert await calls.begin(PAY, {}) == await calls.begin(PAY, {}) == client.asked[0]
    client.end()
    assert (await calls.outcome(client.asked[0])).result == {"n": 0}
    assert await calls.begin(PAY, {}) == client.asked[0]
    assert len(client.asked) == 1


@pytest.mark.parametrize("repeat_of", ["", "no such", "0" * 32, "../x"])
async def test_a_repeat_of_no_call_calls_nothing(repeat_of: str) -> None:
    client = PlayedClient()
    with pytest.raises(CallRefused):
        await port(client).call(PAY, {}, repeat_of=repeat_of)
    assert client.asked == []


def test_a_run_has_a_name_and_a_tool_is_what_the_registry_says() -> None:
    with pytest.raises(ValueError, match="run_id is empty"):
        port(PlayedClient(), "")
    entry = {"name": "a.b", "schema": {}, "effect_class": "opaque", "irreversible": True, "volatile": ["at"]}
    (one,) = callable_tools([entry])
    assert (one.irreversible, one.only_reads, one.volatile) == (True, False, ("at",))
