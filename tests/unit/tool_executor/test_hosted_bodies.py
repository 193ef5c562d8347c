"""A workflow's bodies on an executor's partition: killed at each record, two at once, its code changed."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aetheris.protocol.fold.state import KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Outcome
from aetheris.runtime.redis.effects import EffectEntry, EffectStore
from aetheris.sdk.workflows.declaration import AnyWorkflow, workflow
from aetheris.sdk.workflows.errors import CallEnded
from aetheris.sdk.workflows.workflow_context import WorkflowContext
from tests.testkit.body_bench import EFFECTS, PARENT, RELEASE, BodyBench, do, fails, held, read
from tests.testkit.executor_bench import NOWHERE
from tests.testkit.histories import JOB

TOOLS = (do, read, fails, held)


@workflow(name="flow", tools=TOOLS)
async def steps(ctx: WorkflowContext) -> int:
    """One call behind the other."""
    first = await ctx.call(do, n=1)
    second = await ctx.call(read, n=first)
    return await ctx.call(do, n=second)


@workflow(name="flow", tools=TOOLS)
async def at_once(ctx: WorkflowContext) -> list[int]:
    """Several at a time, equal ones among them, and what comes of the first."""
    found = await asyncio.gather(*(ctx.call(do, n=n) for n in (1, 2, 2)))
    return [*found, await ctx.call(do, n=sum(found))]


@workflow(name="flow", tools=TOOLS)
async def catching(ctx: WorkflowContext) -> str:
    """A call fails, and the code goes another way."""
    try:
        await ctx.call(fails, n=1)
    except CallEnded as no:  # a kill makes of a sure failure one that is not
        return f"{no.reason}: {await ctx.call(do, n=7)}"
    return "never"


@workflow(name="flow", tools=TOOLS)
async def raising(ctx: WorkflowContext) -> None:
    """Its own code fails."""
    await ctx.call(do, n=1)
    raise KeyError("secret")


FLOWS = (steps, at_once, catching, raising)


async def run(folder: Path, flow: AnyWorkflow, **fields: Any) -> BodyBench:
    """A job of it, as far as it goes in one life."""
    EFFECTS.clear()
    bench = BodyBench(folder, flow, **fields)
    await bench.born()
    await bench.until_still()
    return bench


@pytest.mark.parametrize("licensed", [("do", "read", "fails"), ()])
@pytest.mark.parametrize(
    ("flow", "result", "effects"),
    [(steps, 10, 2), (at_once, [1, 2, 2, 5], 4), (catching, "no 1: 7", 1)],
)
async def test_a_body_runs_to_its_end(
    tmp_path: Path, flow: AnyWorkflow, result: Any, effects: int, licensed: Sequence[str]
) -> None:
    bench = await run(tmp_path, flow, licensed=licensed)
    assert bench.outcome() == {
        "status": KeyStatus.SETTLED,
        "outcome": Settled.SUCCESS,
        "result": result,
        "reason": None,
    }
    assert list(EFFECTS.values()) == [1] * effects


async def test_a_step_is_one_append(tmp_path: Path) -> None:
    """What came of a call, what follows from it, and that this begins, lie side by side."""
    bench = await run(tmp_path, steps)
    ours = ("tool_invocation_finished", "command_committed", "call_planned", "tool_invocation_started")
    assert [event.event_type for event in bench.events()][5:9] == list(ours)
    groups = [len(group) for group in bench.appended]
    assert groups == [2, 1, 2, 4, 4, 2, 2], groups  # creation, p, first call, two steps, the last one's end, p's end


class _Withholding(EffectStore):
    """A store that keeps nothing until it may."""

    def __init__(self) -> None:
        super().__init__(NOWHERE, 60)
        self.asked, self.may = asyncio.Event(), asyncio.Event()

    async def put(self, effects: Sequence[EffectEntry], deadline_s: float | None = None) -> None:  # noqa: ARG002
        self.asked.set()
        await self.may.wait()


async def test_a_body_is_told_while_the_effect_is_being_kept_and_nothing_of_it_is_appended_before(
    tmp_path: Path,
) -> None:
    EFFECTS.clear()
    store = _Withholding()
    bench = BodyBench(tmp_path, steps, store=store)
    await bench.born()
    await bench.until_still()
    await store.asked.wait()
    (told,) = bench.local.told
    kinds = {type(one) for one in bench.events() if getattr(one, "node_id", None) == told}
    assert kinds == {ev.CallPlanned, ev.ToolInvocationStarted}
    assert sum(isinstance(one, ev.CallPlanned) for one in bench.events()) == 1
    store.may.set()
    await bench.until_still()
    assert bench.outcome()["result"] == 10


async def test_code_that_fails_fails_its_node_and_says_no_value(tmp_path: Path) -> None:
    bench = await run(tmp_path, raising)
    assert bench.outcome()["outcome"] is Settled.FAILED
    assert bench.outcome()["reason"].startswith("KeyError")
    assert "secret" not in str(bench.events())


@pytest.mark.parametrize("flow", FLOWS)
async def test_killed_behind_each_record_it_ends_as_it_would_have(tmp_path: Path, flow: AnyWorkflow) -> None:
    whole = await run(tmp_path, flow)
    effects = set(EFFECTS)
    for cut in range(3, len(whole.records)):
        again = BodyBench(tmp_path, flow)
        await again.take_over(whole.records[:cut])
        await again.until_still()
        assert again.outcome() == whole.outcome(), cut
        assert set(EFFECTS) == effects, cut


@pytest.mark.parametrize("seed", range(10))
async def test_killed_many_times_it_ends_as_it_would_have(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    flow, licensed = chance.choice(FLOWS), chance.choice([("do", "read", "fails"), ("do",), ()])
    whole = await run(tmp_path, flow)
    effects, records = set(EFFECTS), list(whole.records)
    for _ in range(12):
        cut = chance.randint(3, len(records))
        again = BodyBench(tmp_path, flow, licensed)
        await again.take_over(records[:cut])
        await again.until_still()
        assert (again.outcome(), set(EFFECTS)) == (whole.outcome(), effects)
        records = list(again.records)


async def test_a_body_that_is_superseded_plans_nothing_more_and_says_so(tmp_path: Path) -> None:
    """Its executor was away for a while; what it has begun is done once."""

    @workflow(name="flow", tools=TOOLS)
    async def waits(ctx: WorkflowContext) -> int:
        return await ctx.call(do, n=await ctx.call(held, n=1))

    RELEASE[0] = asyncio.Event()
    zombie = await run(tmp_path, waits, licensed=("do", "held"))
    second = BodyBench(tmp_path, waits, licensed=("do", "held"))
    await second.take_over(zombie.records)
    RELEASE[0].set()
    await second.until_still()
    assert second.outcome()["result"] == 1
    await zombie.until_still()
    own = [
        one
        for one in zombie.events()
        if getattr(one, "invocation_id", "") == zombie.body and one.event_type != "call_planned"
    ]
    assert [getattr(one, "outcome", None) for one in own] == [None, None, Outcome.RETRYABLE]  # begun, reopened, stopped
    assert zombie.local.stopped == ["superseded"]
    assert list(EFFECTS.values()) == [1]


@pytest.mark.parametrize("cut", range(4))
async def test_code_that_goes_another_way_stands_still_and_says_where(tmp_path: Path, cut: int) -> None:
    @workflow(name="flow", tools=TOOLS)
    async def edited(ctx: WorkflowContext) -> int:
        await ctx.call(do, n=9)
        return await ctx.call(do, n=await ctx.call(read, n=await ctx.call(do, n=1)))

    whole = await run(tmp_path, steps)
    again = BodyBench(tmp_path, edited)
    await again.take_over(whole.records[: 5 + 2 * cut])
    await again.until_still()
    (doubt,) = [event for event in again.events() if isinstance(event, ev.InvocationInDoubt)]
    assert (doubt.node_id, doubt.error_class, doubt.returned) == (PARENT, "diverged", True)
    (evidence,) = doubt.evidence
    assert len(evidence["held"]) == 1
    assert evidence["unasked"][0].startswith("do.")
    assert {"code", "recorded_code"} <= set(evidence)
    assert len(EFFECTS) <= 2


async def test_code_that_only_adds_behind_goes_on(tmp_path: Path) -> None:
    @workflow(name="flow", tools=TOOLS)
    async def longer(ctx: WorkflowContext) -> int:
        found = await ctx.call(do, n=1)
        await ctx.call(read, n=5)
        await ctx.call(do, n=10)
        return found + await ctx.call(do, n=3)

    whole = await run(tmp_path, steps)
    again = BodyBench(tmp_path, longer)
    await again.take_over(whole.records[:9])
    await again.until_still()
    assert again.outcome()["result"] == 4


@pytest.mark.parametrize("licensed", [("do", "read"), ()])
@pytest.mark.parametrize("cut", range(4))
async def test_code_that_reads_anew_before_what_was_done_goes_on(
    tmp_path: Path, cut: int, licensed: Sequence[str]
) -> None:
    @workflow(name="flow", tools=TOOLS)
    async def reads_first(ctx: WorkflowContext) -> int:
        seven = await ctx.call(read, n=7)
        found = await ctx.call(do, n=1)
        return await ctx.call(do, n=await ctx.call(read, n=found)) + seven

    whole = await run(tmp_path, steps)
    done = set(EFFECTS)
    again = BodyBench(tmp_path, reads_first, licensed)
    await again.take_over(whole.records[: 5 + 2 * cut])
    await again.until_still()
    assert again.outcome()["status"] is KeyStatus.SETTLED
    assert not [event for event in again.events() if isinstance(event, ev.InvocationInDoubt) if event.node_id == PARENT]
    assert len(EFFECTS) <= len(done) + 1


async def test_other_arguments_of_a_named_call_stand_still(tmp_path: Path) -> None:
    @workflow(name="flow", tools=TOOLS)
    async def named(ctx: WorkflowContext) -> int:
        return await ctx.using(id="it").call(do, n=await ctx.call(read, n=1))

    @workflow(name="flow", tools=TOOLS)
    async def otherwise(ctx: WorkflowContext) -> int:
        return await ctx.using(id="it").call(do, n=2)

    whole = await run(tmp_path, named)
    for cut in range(9, len(whole.records) - 2):
        again = BodyBench(tmp_path, otherwise)
        await again.take_over(whole.records[:cut])
        await again.until_still()
        (doubt,) = [event for event in again.events() if isinstance(event, ev.InvocationInDoubt)]
        assert doubt.evidence[0]["changed"] == "p.it"
    assert len(EFFECTS) == 1


async def test_a_partition_that_is_given_back_lets_go_of_its_bodies(tmp_path: Path) -> None:
    RELEASE[0] = asyncio.Event()

    @workflow(name="flow", tools=TOOLS)
    async def waits(ctx: WorkflowContext) -> int:
        return await ctx.call(held, n=1)

    bench = await run(tmp_path, waits, licensed=("held",))
    await bench.stop_all()
    last = bench.events()[-1]
    assert isinstance(last, ev.ToolInvocationFinished)
    assert (last.node_id, last.outcome) == (PARENT, Outcome.RETRYABLE)
    assert bench.local.stopped == ["revoked"]
    RELEASE[0].set()


async def test_a_body_of_a_job_that_stops_is_stopped(tmp_path: Path) -> None:
    RELEASE[0] = asyncio.Event()

    @workflow(name="flow", tools=TOOLS)
    async def waits(ctx: WorkflowContext) -> int:
        return await ctx.call(held, n=1)

    bench = await run(tmp_path, waits, licensed=("held",))
    await bench.write(ev.JobStopping(job_id=JOB, by="ann", reason="r", up_to_revision=0))
    await bench.until_still()
    assert bench.local.stopped == ["cancelled"]
    RELEASE[0].set()


@pytest.mark.parametrize("flow", [raising, steps])
async def test_a_body_whose_job_stops_behind_its_end_says_no_other_end(tmp_path: Path, flow: AnyWorkflow) -> None:
    class StopsAtOnce(BodyBench):
        """Its end and the stop are read together."""

        async def append(self, groups: Sequence[Any]) -> None:
            await super().append(groups)
            if any(_is_end(event) for event in self.events()[-2:]) and self.job.stopping is None:
                await self.write(ev.JobStopping(job_id=JOB, by="ann", reason="r", up_to_revision=0))

    EFFECTS.clear()
    bench = StopsAtOnce(tmp_path, flow)
    await bench.born()
    await bench.until_still()
    assert bench.job.stopping is not None
    assert len([event for event in bench.events() if _is_end(event)]) == 1


def _is_end(event: ev.Event) -> bool:
    return isinstance(event, ev.ToolInvocationFinished) and event.node_id == PARENT


async def test_a_body_that_waits_for_long_is_let_go_and_begun_anew_when_it_can_go_on(tmp_path: Path) -> None:
    RELEASE[0] = asyncio.Event()

    @workflow(name="flow", tools=TOOLS)
    async def waits(ctx: WorkflowContext) -> int:
        return await ctx.call(do, n=await ctx.call(held, n=3))

    bench = await run(tmp_path, waits, licensed=("do", "held"), idle_s=0.001)
    await bench.until_still()
    slept = bench.events()[-1]
    assert isinstance(slept, ev.ToolInvocationFinished)
    assert (slept.node_id, slept.outcome) == (PARENT, Outcome.RETRYABLE)
    assert [one.split(".")[0] for one in slept.until or ()] == ["held"]
    RELEASE[0].set()
    await bench.until_still()
    assert bench.outcome()["result"] == 3
    assert list(EFFECTS.values()) == [1]


@workflow(name="flow", tools=TOOLS)
async def recording(ctx: WorkflowContext) -> int:
    """A call that its own function makes, which waits for others, between two of tools."""
    first = await ctx.call(do, n=1)
    second = await ctx.record("wait", waits_and_adds, first, reads_only=True)
    return await ctx.call(do, n=second)


async def waits_and_adds(n: int) -> int:
    EFFECTS["waits_and_adds", str(n)] += 1
    await RELEASE[0].wait()
    return n + 1


@pytest.mark.parametrize("licensed", [("do", "local.read"), ()])
async def test_a_body_whose_own_function_runs_does_not_sleep_and_another_runs_it_again(
    tmp_path: Path, licensed: Sequence[str]
) -> None:
    RELEASE[0] = asyncio.Event()
    bench = await run(tmp_path, recording, licensed=licensed, idle_s=0.001)
    await asyncio.sleep(0.01)
    await bench.until_still()
    assert bench.outcome()["status"] is KeyStatus.STARTED
    assert EFFECTS["waits_and_adds", "1"] == 1
    second = BodyBench(tmp_path, recording, licensed=licensed)
    await second.take_over(list(bench.records))  # the first is as good as dead
    RELEASE[0].set()
    await second.until_still()
    assert (second.outcome()["outcome"], second.outcome()["result"]) == (Settled.SUCCESS, 2)
    assert EFFECTS["waits_and_adds", "1"] == 2
