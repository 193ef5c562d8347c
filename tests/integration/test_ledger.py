"""The ledger as a process on a real broker and a real Valkey: killed, restarted, its Redis wiped.

Planner, executor and verifier are played by the test.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.state import KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import (
    Resolve,
)
from aetheris.protocol.messages.event_values import Via
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.process.settings import RuntimeSettings
from aetheris.runtime.redis.client import Redis
from tests.testkit.ledger_process import WATCHED_DLQ, LedgerSurroundings, drafted, ledger_job
from tests.testkit.principals import said_by
from tests.testkit.tries import try_of

pytestmark = pytest.mark.real

DEADLINE_S = 60.0
TTL_S = 1.0


@pytest.fixture
async def around(kafka: str, valkey_url: str, tmp_path: Path) -> AsyncIterator[LedgerSurroundings]:
    await ensure_topics(kafka, RuntimeSettings.model_validate({}).partitions)
    environment = {
        "AETHERIS_KAFKA": kafka,
        "AETHERIS_REDIS": valkey_url,
        "AETHERIS_DATA": str(tmp_path),
        "AETHERIS_DEV": "true",
        "AETHERIS_LEASE_TTL_S": str(TTL_S),
        "AETHERIS_WORKER_ID": "ledger-under-test",
    }
    log, redis = KafkaLog(kafka), Redis(valkey_url)
    await log.start()
    try:
        async with LedgerSurroundings(log, redis, environment).watching() as made:
            yield made
    finally:
        await log.stop()
        await redis.close()


async def test_a_step_on_the_success_path(around: LedgerSurroundings) -> None:
    step = ledger_job(around, "opaque")
    await step.create()
    async with around.ledger():
        await step.request()
        grant = await step.granted()
        assert (grant.idempotency_key, grant.birth) == (step.key(), step.state.creation_offset)
        await step.start("n1")
        await step.add(step.finished("n1", result={"id": 1}))
        await around.until(lambda: step.views)
    (view,) = step.views
    assert (view.status, view.committed, view.result, view.invocation_id) == ("success", True, {"id": 1}, try_of("n1"))
    assert step.partitions(Topic.LEDGER_RECORDS, step.key()) == step.partitions(Topic.JOBS_EVENTS)
    assert not step.of(ev.InvocationInDoubt)


async def test_an_open_request_outlives_the_ledger_and_redis(around: LedgerSurroundings) -> None:
    step = ledger_job(around, "opaque")
    await step.create()
    async with around.ledger():
        await step.request()
        await step.granted()
    await around.flush()
    given = len(step.grants)
    async with around.ledger():
        await step.granted(count=given + 1)
    assert {grant.token for grant in step.grants} == {1}


async def test_a_request_that_came_while_no_ledger_ran_is_granted(around: LedgerSurroundings) -> None:
    step = ledger_job(around, "opaque")
    await step.create()
    await step.request()
    async with around.ledger():
        await step.granted()


async def test_redis_loses_everything_and_nothing_is_doubted_too_early(around: LedgerSurroundings) -> None:
    step = ledger_job(around, "opaque", timeout_s=4.0)
    await step.create()
    async with around.ledger():
        await step.request()
        await step.granted()
        await step.start("n1")
        await around.flush()
        flushed_s = time.monotonic()
        await around.until(lambda: step.status() is KeyStatus.PARKED)
        assert time.monotonic() - flushed_s >= TTL_S + 4.0
    assert [event.error_class for event in step.of(ev.InvocationInDoubt)] == ["lease_expired"]


async def test_an_idempotent_call_goes_on_with_the_next_token_across_a_kill(around: LedgerSurroundings) -> None:
    step = ledger_job(around, "idempotent")
    await step.create()
    async with around.ledger():
        await step.request()
        await step.granted()
        await step.start("n1")
    await step.worker_ends()
    async with around.ledger():
        await step.granted(token=2)
        await step.start("n2", token=2, incarnation="i2")
        await step.add(step.finished("n2"))
        await around.until(lambda: step.views)
    assert len({event.incarnation for event in step.of(ev.WorkerEnded)}) == len(step.of(ev.WorkerEnded)) == 1
    assert [event.next_token for event in step.of(ev.InvocationReopened)] == [2]
    assert step.key_state().settled_by == try_of("n2")


async def test_an_effect_that_was_stored_but_not_reported_is_caught_up(around: LedgerSurroundings) -> None:
    step = ledger_job(around, "opaque")
    await step.create()
    async with around.ledger():
        await step.request()
        await step.granted()
        await step.start("n1")
        await step.put_effect("n1", {"id": 5})
        await step.worker_ends()
        await around.until(lambda: step.status() is KeyStatus.SETTLED)
    state = step.key_state()
    assert (state.outcome, state.via, state.settled_by, state.result) == (
        Settled.SUCCESS,
        Via.CATCH_UP,
        try_of("n1"),
        {"id": 5},
    )
    assert len(step.of(ev.CommandCommitted)) == 1
    assert {grant.token for grant in step.grants} == {1}  # asked again after a lease, on a slow machine


async def test_a_probe_after_the_end_of_the_worker_reopens_and_one_before_does_not(around: LedgerSurroundings) -> None:
    step = ledger_job(around, "probeable", settles_s=0.5)
    await step.create()
    async with around.ledger(AETHERIS_END_WAIT_S="60"):
        await step.request()
        await step.granted()
        await step.start("n1")
        await around.until(lambda: step.asks)
        await step.answer(step.asks[0], "not_found")
    async with around.ledger(AETHERIS_END_WAIT_S="60"):
        await around.until(lambda: len(step.asks) == 2)
        assert step.status() is KeyStatus.STARTED
        await step.answer(step.asks[1], "not_found")
        await step.worker_ends()
        await around.until(lambda: len(step.asks) == 3)
        assert step.of(ev.WorkerEnded)
        assert step.status() is KeyStatus.STARTED
        await step.answer(step.asks[2], "not_found")
        await step.granted(token=2)
    assert [event.by for event in step.of(ev.InvocationReopened)] == ["probe"]


async def test_a_probe_that_finds_settles(around: LedgerSurroundings) -> None:
    step = ledger_job(around, "probeable")
    await step.create()
    async with around.ledger():
        await step.start("n1")
        await step.worker_ends()
        await around.until(lambda: step.asks)
        await step.answer(step.asks[0], "found", result={"id": 2}, external_id="ch_2")
        await around.until(lambda: step.status() is KeyStatus.SETTLED)
    state = step.key_state()
    assert (state.via, state.external_id, state.result) == (Via.PROBE, "ch_2", {"id": 2})


async def test_a_scheduled_retry_outlives_the_ledger(around: LedgerSurroundings) -> None:
    step = ledger_job(around, "opaque", retry={"max_attempts": 2, "backoff_s": 6.0})
    await step.create()
    async with around.ledger():
        await step.request()
        await step.granted()
        await step.start("n1")
        await step.add(step.finished("n1", "retryable_failure"))
        await around.until(lambda: step.of(ev.RetryScheduled))
    async with around.ledger():
        await step.granted(token=2)
        assert len(step.of(ev.RetryScheduled)) == 1
        assert datetime.now(UTC) >= datetime.fromisoformat(step.of(ev.RetryScheduled)[0].due_at)


async def test_a_freeze_that_nobody_ordered_is_taken_back_when_the_topic_was_read(around: LedgerSurroundings) -> None:
    step = ledger_job(around, "opaque")
    await step.create()
    scope = FreezeScope(tenant="acme")
    async with around.ledger():
        forged = ev.JobFrozen(job_id=step.id, scope=scope, number=999, by="eve", at="now")
        await around.put(drafted(Topic.JOBS_EVENTS, forged, step.id))
        await around.until(lambda: step.of(ev.JobUnfrozen) != [])
    (back,) = step.of(ev.JobUnfrozen)
    assert (back.scope, back.number, back.ordered) == (scope, 999, 0)


async def test_a_human_settles_what_is_parked(around: LedgerSurroundings) -> None:
    step = ledger_job(around, "opaque")
    await step.create()
    async with around.ledger():
        await step.start("n1")
        await step.worker_ends()
        await around.until(lambda: step.status() is KeyStatus.PARKED)
        command = Resolve(
            job_id=step.id,
            **said_by("bob"),
            tenant="acme",
            execution_id=execution_id(step.id, "a", step.key()),
            verdict="happened",
            evidence="receipt 17",
            result={"size": "x" * 70_000},
            as_of=step.log[-1][0],
        )
        await around.put(drafted(Topic.JOBS_COMMANDS, command, step.id))
        await around.until(lambda: step.status() is KeyStatus.SETTLED)
    (done,) = step.of(ev.ToolInvocationFinished)
    assert (done.via, done.by, done.evidence, done.result) == (Via.HUMAN, "bob", "receipt 17", None)
    assert done.caused_by
    assert done.result_ref is not None
    blob = Path(around.environment["AETHERIS_DATA"]) / "blobs" / done.result_ref.sha256[:2] / done.result_ref.sha256
    assert blob.stat().st_size == done.result_ref.size


async def test_what_cannot_be_decoded_is_put_aside_and_the_rest_goes_on(around: LedgerSurroundings) -> None:
    step = ledger_job(around, "opaque")
    await step.create()
    async with around.ledger():
        await around.put(Draft(Topic.TOOLS_REQUESTS, step.id.encode(), b"no request"))
        await step.request()
        await step.granted()
        await around.until(lambda: [r for r in around.records.get(WATCHED_DLQ, []) if r.key == step.id.encode()])


async def test_an_irreversible_call_follows_the_policy_of_the_file(around: LedgerSurroundings, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rules]]\nname = "house-rule"\ntools = ["a*"]\neffect = "allow"\n')
    allowed, asked = ledger_job(around, "opaque", irreversible=True), ledger_job(around, "opaque", irreversible=True)
    await allowed.create()
    await asked.create()
    async with around.ledger(AETHERIS_POLICY=str(policy)):
        await allowed.request()
        grant = await allowed.granted()
    at = next(offset for offset, event in allowed.log if isinstance(event, ev.PolicyAllowed))
    assert grant.as_of >= at
    assert allowed.of(ev.PolicyAllowed)[0].rule == "house-rule"
    async with around.ledger():
        await asked.request()
        await around.until(lambda: asked.of(ev.JobWaiting))
    assert asked.of(ev.ApprovalRequested)[0].rule == "irreversible-needs-approval"
    assert not asked.grants


async def test_a_policy_that_cannot_be_used_stops_the_service_at_start(
    around: LedgerSurroundings, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rules]]\nname = "half"\ntools = ["*"]\n')
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "aetheris.ledger",
        env=os.environ | around.environment | {"AETHERIS_POLICY": str(policy)},
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_S):
        _, answer = await process.communicate()
    assert process.returncode == 78, "final: nobody starts it again"
    assert b"rule 'half': effect" in answer
