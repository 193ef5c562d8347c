"""The executor on a real broker and a real Valkey: grants in, facts out, also when it is killed."""

import asyncio
import os
import signal
import sys
import textwrap
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.protocol.fold.state import KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.log.replay import replay
from aetheris.runtime.redis.client import Redis
from aetheris.runtime.redis.effects import EffectStore
from aetheris.tool_executor import app
from aetheris.tool_executor.settings import ExecutorSettings
from tests.testkit.executors import (
    CALLS,
    DEADLINE_S,
    RELEASE,
    ExecutorSurroundings,
    executing,
    pinned,
)

pytestmark = pytest.mark.real


@pytest.fixture
async def surroundings(kafka: str, valkey_url: str, tmp_path: Path) -> AsyncIterator[ExecutorSurroundings]:
    await ensure_topics(kafka, 4)
    worker = f"executor-{uuid.uuid4().hex[:8]}"
    settings = ExecutorSettings.model_validate(
        {"kafka": kafka, "redis": valkey_url, "data": tmp_path, "worker_id": worker, "dev": True, "trace_sample": 0.0}
    )
    log, redis = KafkaLog(kafka), Redis(valkey_url)
    await log.start()
    async with ExecutorSurroundings(log, redis, settings).watching() as made:
        yield made
    await redis.close()
    await log.stop()


async def test_a_grant_becomes_an_effect_once_however_often_it_comes(surroundings: ExecutorSurroundings) -> None:
    job_id = await surroundings.job({"id": "a", "tool": "note", "args": {"text": "hi", "wait_for": ""}})
    granted = await surroundings.grant(job_id, "a", times=3)
    async with executing(surroundings.settings):
        (key,) = await surroundings.settled(job_id)
        await surroundings.grant(job_id, "a", token=1)
        second = await surroundings.job({"id": "a", "tool": "noop"})
        await surroundings.grant(second, "a")
        await surroundings.settled(second)
    assert surroundings.types(job_id) == [
        "tool_invocation_started",
        "tool_invocation_finished",
        "command_committed",
        "state_changed",
    ]
    assert (key.outcome, key.result, key.external_id) == (Settled.SUCCESS, {"text": "hi", "n": 1}, "ext-1")
    assert key.result_hash == digest(key.result)
    assert CALLS[f"aetheris:{job_id}:a:0"] == 1
    (kept,) = await EffectStore(surroundings.redis, 60).find([(job_id, granted.idempotency_key)])
    assert list(kept) == [key.settled_by]


async def test_a_run_of_five_has_five_effects_by_one_grant(surroundings: ExecutorSurroundings) -> None:
    nodes: list[dict[str, Any]] = [
        {"id": f"n{i}", "tool": "note", "args": {"text": str(i), "wait_for": ""}} for i in range(4)
    ]
    nodes[3]["depends_on"] = ["n2"]
    nodes.append({"id": "n4", "tool": "shout", "args": {"text": {"$ref": "n1#/text"}}, "depends_on": ["n3"]})
    job_id = await surroundings.job(*nodes)
    async with executing(surroundings.settings):
        await surroundings.grant(job_id, *(node["id"] for node in nodes))
        keys = await surroundings.settled(job_id, 5)
    assert [key.outcome for key in keys] == [Settled.SUCCESS] * 5
    assert keys[4].result == {"text": "1"}
    assert len({one.id for one in surroundings.of(job_id)}) == len(surroundings.of(job_id)), "two events have one id"
    assert [CALLS[f"aetheris:{job_id}:n{i}:0"] for i in range(4)] == [1] * 4
    last = keys[4].started
    assert [after.invocation_id for after in last.after] == [keys[3].settled_by, keys[1].settled_by]


async def test_a_stop_ends_a_run_before_its_next_node(surroundings: ExecutorSurroundings) -> None:
    gate = uuid.uuid4().hex
    job_id = await surroundings.job(
        {"id": "a", "tool": "note", "args": {"text": "a", "wait_for": gate}},
        {"id": "b", "tool": "note", "args": {"text": "b", "wait_for": ""}},
    )
    async with executing(surroundings.settings):
        await surroundings.grant(job_id, "a", "b")
        await surroundings.until(lambda: CALLS[f"aetheris:{job_id}:a:0"])
        await surroundings.write(ev.JobStopping(job_id=job_id, by="ann", reason="r", up_to_revision=0))
        await surroundings.until(lambda: "job_stopping" in surroundings.types(job_id))
        marker = await surroundings.job({"id": "a", "tool": "noop"})
        RELEASE[gate].set()
        await surroundings.settled(job_id)
        await surroundings.grant(marker, "a")
        await surroundings.settled(marker)
    assert CALLS[f"aetheris:{job_id}:b:0"] == 0
    assert surroundings.fold(job_id).keys.keys() == {surroundings.granted(job_id, "a").idempotency_key}


async def test_of_two_executors_that_both_think_it_theirs_one_runs(
    surroundings: ExecutorSurroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Membership fences nothing: both read every grant, and declare; the log's order alone decides."""
    nodes: list[dict[str, Any]] = [
        {"id": f"n{i}", "tool": "note", "args": {"text": str(i), "wait_for": ""}} for i in range(5)
    ]
    zombie = surroundings.settings.model_copy(update={"worker_id": f"{surroundings.settings.worker_id}-zombie"})
    async with executing(surroundings.settings):
        await surroundings.settled(await surroundings.granted_noop())
        monkeypatch.setattr(app, "GROUP", "aetheris.tool_executor.zombie")
        async with executing(zombie):
            async with asyncio.timeout(DEADLINE_S):
                while not surroundings.started_by(zombie.worker_id):
                    await surroundings.settled(await surroundings.granted_noop())
            jobs: list[str] = []
            raced = False
            while not raced and len(jobs) < 200:
                fresh = [await surroundings.job(*nodes) for _ in range(20)]
                for job_id in fresh:
                    await surroundings.grant(job_id, *(node["id"] for node in nodes))
                for job_id in fresh:
                    await surroundings.settled(job_id, 5)
                jobs += fresh
                raced = any(surroundings.types(job_id).count("tool_invocation_started") > 5 for job_id in fresh)
    assert {CALLS[f"aetheris:{job_id}:{node['id']}:0"] for job_id in jobs for node in nodes} == {1}
    assert raced, "no race took place"


async def test_what_is_called_while_its_partition_goes_and_comes_back_is_no_stray(
    surroundings: ExecutorSurroundings,
) -> None:
    """Another executor comes and leaves: what the first is calling all the while is called once, and never denied."""
    gate = uuid.uuid4().hex
    note_it: dict[str, Any] = {"id": "a", "tool": "note", "args": {"text": "a", "wait_for": gate}}
    jobs = [await surroundings.job(note_it) for _ in range(12)]
    guest = surroundings.settings.model_copy(update={"worker_id": f"{surroundings.settings.worker_id}-guest"})
    async with executing(surroundings.settings):
        for job_id in jobs:
            await surroundings.grant(job_id, "a")
        await surroundings.until(
            lambda: all("tool_invocation_started" in surroundings.types(job_id) for job_id in jobs)
        )
        async with executing(guest), asyncio.timeout(DEADLINE_S):
            while not surroundings.started_by(guest.worker_id):
                await surroundings.answered(await surroundings.granted_noop())
        for noop_id in [await surroundings.granted_noop() for _ in range(12)]:
            await surroundings.answered(noop_id)
        assert [surroundings.types(job_id) for job_id in jobs] == [["tool_invocation_started"]] * 12
        RELEASE[gate].set()
        for job_id in jobs:
            await surroundings.settled(job_id)
    assert [CALLS[f"aetheris:{job_id}:a:0"] for job_id in jobs] == [1] * 12


async def test_how_a_call_ends_decides_what_is_reported(surroundings: ExecutorSurroundings) -> None:
    ends = {"unsent": "retryable_failure", "failed": "permanent_failure", "half": "compensatable_failure"}
    async with executing(surroundings.settings):
        for how, outcome in ends.items():
            job_id = await surroundings.job(
                {"id": "a", "tool": "breaks", "args": {"how": how}}, {"id": "b", "tool": "noop"}
            )
            await surroundings.grant(job_id, "a", "b")
            await surroundings.until(lambda job_id=job_id: "tool_invocation_finished" in surroundings.types(job_id))
            (finished,) = [
                one.body for one in surroundings.of(job_id) if isinstance(one.body, ev.ToolInvocationFinished)
            ]
            assert (finished.outcome, len(surroundings.fold(job_id).keys)) == (outcome, 1)


async def test_what_nobody_knows_is_no_outcome(surroundings: ExecutorSurroundings) -> None:
    job_id = await surroundings.job(
        {"id": "a", "tool": "breaks", "args": {"how": "lost"}}, {"id": "b", "tool": "looks"}
    )
    async with executing(surroundings.settings):
        await surroundings.grant(job_id, "a")
        await surroundings.grant(job_id, "b")
        await surroundings.until(lambda: len(surroundings.types(job_id)) == 4)
    doubts = [one for one in surroundings.of(job_id) if isinstance(one.body, ev.InvocationInDoubt)]
    assert [one.body.error_class for one in doubts if isinstance(one.body, ev.InvocationInDoubt)] == [
        "ConnectionResetError"
    ]
    assert b"secret" not in doubts[0].record.value
    by_node = {key.node_id: key for key in surroundings.fold(job_id).keys.values()}
    assert (by_node["a"].status, by_node["b"].status) == (KeyStatus.STARTED, KeyStatus.REOPENED)


async def test_what_is_refused_is_ended_in_one_group_and_what_is_missing_passed_over(
    surroundings: ExecutorSurroundings,
) -> None:
    tools = pinned()
    tools["shout"] |= {"version": "9"}
    job_id = await surroundings.job(
        {"id": "a", "tool": "shout", "args": {"text": "x"}},
        {"id": "b", "tool": "large", "args": {"size": 3}},
        {"id": "c", "tool": "large", "args": {"size": {"$ref": "b#/data"}}},
        tools=tools,
    )
    async with executing(surroundings.settings):
        await surroundings.grant(job_id, "a")
        await surroundings.grant(job_id, "b")
        await surroundings.settled(job_id)
        await surroundings.grant(job_id, "c", args={"size": "xxx"})
        await surroundings.settled(job_id, 2)
    by_node = {key.node_id: key for key in surroundings.fold(job_id).keys.values()}
    assert "a" not in by_node, "another executor may have that version"
    assert (by_node["c"].outcome, by_node["c"].sure) == (Settled.FAILED, True)
    assert by_node["c"].reason == "invalid_args: /size: int_parsing"


async def test_large_results_go_by_reference_and_come_back(surroundings: ExecutorSurroundings) -> None:
    job_id = await surroundings.job(
        {"id": "a", "tool": "large", "args": {"size": 200_000}},
        {"id": "b", "tool": "measure", "args": {"data": {"$ref": "a#/data"}}},
        {"id": "c", "tool": "measure", "args": {"data": {"$ref": "a#/data"}}},
    )
    args = {"data": "x" * 200_000}
    async with executing(surroundings.settings):
        await surroundings.grant(job_id, "a", "b")
        await surroundings.settled(job_id, 2)
        await surroundings.grant(job_id, "c", args=args)
        first, second, third = await surroundings.settled(job_id, 3)
    assert (first.result, first.result_ref.sha256) == (None, first.result_hash)
    assert (second.result, third.result) == (200_000, 200_000)


async def test_time_and_random_are_recorded_effects(surroundings: ExecutorSurroundings) -> None:
    job_id = await surroundings.job({"id": "t", "kind": "time"}, {"id": "r", "kind": "random"})
    async with executing(surroundings.settings):
        await surroundings.grant(job_id, "t", "r")
        time, random = await surroundings.settled(job_id, 2)
    assert set(time.result) == {"now", "unix_ms"}
    assert 0 <= random.result["value"] < 1


async def test_without_redis_it_goes_on(surroundings: ExecutorSurroundings) -> None:
    nodes: list[dict[str, Any]] = [{"id": f"n{i}", "tool": "noop"} for i in range(3)]
    job_id = await surroundings.job(*nodes)
    async with executing(surroundings.settings.model_copy(update={"redis": "redis://127.0.0.1:9/0"})):
        await surroundings.grant(job_id, "n0", "n1", "n2")
        await surroundings.settled(job_id, 3)


async def test_running_tools_are_capped_and_the_others_wait_their_turn(surroundings: ExecutorSurroundings) -> None:
    gate = uuid.uuid4().hex
    nodes: list[dict[str, Any]] = [
        {"id": f"n{i}", "tool": "note", "args": {"text": "x", "wait_for": gate}} for i in range(5)
    ]
    job_id = await surroundings.job(*nodes)
    async with executing(surroundings.settings.model_copy(update={"running_tools": 2})):
        for node in nodes:
            await surroundings.grant(job_id, node["id"])
        await surroundings.until(lambda: sum(CALLS[f"aetheris:{job_id}:n{i}:0"] for i in range(5)) == 2)
        marker = await surroundings.job({"id": "a", "tool": "noop"})
        assert len(surroundings.types(job_id)) == 2
        RELEASE[gate].set()
        await surroundings.settled(job_id, 5)
        await surroundings.grant(marker, "a")
        await surroundings.settled(marker)


async def test_a_stop_lets_running_tools_finish_and_takes_no_more(surroundings: ExecutorSurroundings) -> None:
    gate = uuid.uuid4().hex
    job_id = await surroundings.job(
        {"id": "a", "tool": "note", "args": {"text": "a", "wait_for": gate}}, {"id": "b", "tool": "noop"}
    )
    async with executing(surroundings.settings) as stop:
        await surroundings.grant(job_id, "a", "b")
        await surroundings.until(lambda: CALLS[f"aetheris:{job_id}:a:0"])
        stop.set()
        asyncio.get_running_loop().call_later(0.3, RELEASE[gate].set)
    await surroundings.settled(job_id)
    assert len(surroundings.fold(job_id).keys) == 1


async def test_undecodable_grants_go_to_the_dead_letters(surroundings: ExecutorSurroundings) -> None:
    places = [(dead_letters(Topic.TOOLS_GRANTS), number) for number in range(4)]
    before = await surroundings.log.end_offsets(places)
    job_id = await surroundings.job({"id": "a", "tool": "noop"})

    async def letters(place: tuple[str, int], end: int) -> list[Record]:
        """The job's dead letters of one partition; a former life's may be quarantined once more."""
        found = replay(surroundings.log, place, before[place], end)
        return [one async for records in found for one in records if one.key == job_id.encode()]

    async with executing(surroundings.settings):
        await surroundings.raw(Draft(Topic.TOOLS_GRANTS, job_id.encode(), b"{", (("ce_id", b"1"), ("ce_type", b"x"))))
        await surroundings.grant(job_id, "a")
        await surroundings.settled(job_id)
    ends = await surroundings.log.end_offsets(places)
    assert len([one for place in places for one in await letters(place, ends[place])]) == 1


SLOW_TOOLS = """
    import os, time
    from aetheris.sdk import ToolContext, tool

    @tool(effect_class="idempotent")
    def write(ctx: ToolContext, text: str) -> str:
        with open(os.environ["EFFECTS"], "a") as file:
            file.write(f"{ctx.external_key} {text}\\n")
        return text
"""


@asynccontextmanager
async def process(
    surroundings: ExecutorSurroundings, folder: Path, crash_at: str = ""
) -> AsyncGenerator[asyncio.subprocess.Process]:
    (folder / "slow_tools.py").write_text(textwrap.dedent(SLOW_TOOLS))
    environment = os.environ | {
        "AETHERIS_KAFKA": surroundings.settings.kafka,
        "AETHERIS_REDIS": surroundings.settings.redis,
        "AETHERIS_DATA": str(surroundings.settings.data),
        "AETHERIS_WORKER_ID": surroundings.settings.worker_id,
        "AETHERIS_DEV": "1",
        "AETHERIS_TRACE_SAMPLE": "0",
        "AETHERIS_TOOLS": "slow_tools",
        "AETHERIS_CRASH_AT": crash_at,
        "PYTHONPATH": str(folder),
        "EFFECTS": str(folder / "effects"),
    }
    child = await asyncio.create_subprocess_exec(sys.executable, "-m", "aetheris.tool_executor", env=environment)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_S):
            await child.wait()


@pytest.mark.parametrize(
    ("point", "effects", "states"),
    [
        ("before_started", [], [KeyStatus.SETTLED]),
        ("after_started", [], [KeyStatus.STARTED]),
        ("before_call", [], [KeyStatus.STARTED]),
        ("in_call", ["a"], [KeyStatus.STARTED]),
        ("after_call", ["a"], [KeyStatus.STARTED]),
        ("after_put_effect", ["a"], [KeyStatus.STARTED]),
        ("after_append", ["a"], [KeyStatus.SETTLED, KeyStatus.STARTED]),
    ],
)
async def test_a_killed_executor_repeats_nothing(
    surroundings: ExecutorSurroundings, tmp_path: Path, point: str, effects: list[str], states: list[KeyStatus]
) -> None:
    """Killed at each point, and started again: what is open stays open for the ledger, with the evidence it has."""
    namespace: dict[str, Any] = {}
    exec(textwrap.dedent(SLOW_TOOLS), namespace)  # noqa: S102  the same text as the process imports
    tools = pinned([namespace["write"]])
    job_id = await surroundings.job(
        {"id": "a", "tool": "write", "args": {"text": "a"}},
        {"id": "b", "tool": "write", "args": {"text": "b"}},
        tools=tools,
    )
    async with process(surroundings, tmp_path, point) as dying:
        granted = await surroundings.grant(job_id, "a", "b")
        async with asyncio.timeout(DEADLINE_S):
            assert await dying.wait() == -signal.SIGKILL
    written = tmp_path / "effects"
    wanted = effects
    async with process(surroundings, tmp_path, point):
        if point == "before_started":  # nothing was declared: the grant is read again
            await surroundings.settled(job_id, 2)
            wanted, states = ["a", "b"], [KeyStatus.SETTLED, KeyStatus.SETTLED]
        other = await surroundings.job({"id": "a", "tool": "write", "args": {"text": "other"}}, tools=tools)
        await surroundings.grant(other, "a")
        await surroundings.settled(other)
    lines = [line.split() for line in written.read_text().splitlines()] if written.exists() else []
    assert [text for key, text in lines if f":{job_id}:" in key] == wanted
    assert [key.status for key in surroundings.fold(job_id).keys.values()] == states
    (kept,) = await EffectStore(surroundings.redis, 60).find([(job_id, granted.idempotency_key)])
    assert bool(kept) == (point in ("after_put_effect", "after_append", "before_started"))
