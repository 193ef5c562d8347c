"""Results that a body hands on unread, on an executor's partition: its process never has them, whatever dies."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aetheris.protocol.fold.state import Settled
from aetheris.protocol.messages import events as ev
from aetheris.runtime.blobs.store import BlobsUnreachable
from aetheris.sdk.workflows.declaration import AnyWorkflow, workflow
from aetheris.sdk.workflows.workflow_context import WorkflowContext
from tests.testkit.body_bench import EFFECTS, LARGE, PARENT, BodyBench, describe, do, keep, page, read

TOOLS = (do, read, page, keep, describe)
ALL = ("do", "read", "page", "keep", "describe")
KEPT = f"x {LARGE}"
PATIENCE_S = 60.0


@workflow(name="flow", tools=TOOLS)
async def hands_on(ctx: WorkflowContext) -> list[Any]:
    """Parts of a large result, and all of it, go on to others."""
    await ctx.call(do, n=1)
    found = await ctx.reference(page, name="x")
    kept = await ctx.call(keep, text=found.at("/body"), name=found.at("/links/1"))
    return [kept, await ctx.call(describe, page=found.result), await ctx.call(do, n=2)]


@workflow(name="flow", tools=TOOLS)
async def reads_it(ctx: WorkflowContext) -> list[Any]:
    """The same, by its own code."""
    await ctx.call(do, n=1)
    found = await ctx.call(page, name="x")
    kept = await ctx.call(keep, text=found.body[:10], name=found.links[1])
    return [kept, await ctx.call(do, n=2)]


async def run(folder: Path, flow: AnyWorkflow, licensed: Sequence[str] = ALL) -> BodyBench:
    """A job of it, as far as it goes in one life."""
    EFFECTS.clear()
    bench = BodyBench(folder, flow, licensed)
    await bench.born()
    await over(bench)
    return bench


async def over(bench: BodyBench) -> None:
    """Until it has ended: large results are kept and loaded in threads, which take their time."""
    async with asyncio.timeout(PATIENCE_S):
        while bench.job.settled_key(PARENT) is None:
            await bench.until_still()


def longest(results: Sequence[Any]) -> int:
    return max(len(json.dumps(one)) for one in results)


@pytest.mark.parametrize("licensed", [ALL, ("page",), ()])
async def test_neither_code_nor_record_has_what_is_handed_on(tmp_path: Path, licensed: Sequence[str]) -> None:
    bench = await run(tmp_path, hands_on, licensed)
    assert bench.outcome()["result"] == [f"x2{KEPT}", LARGE + 2, 2]
    assert longest(bench.local.results) < 100
    assert max(len(record.value or b"") for record in bench.records) < LARGE
    assert sum(EFFECTS.values()) == 3
    planned = [one for one in bench.events() if isinstance(one, ev.CallPlanned) and one.call_key is not None]
    assert [one.entry["tool"] for one in planned] == ["keep", "describe"]


@pytest.mark.parametrize("licensed", [ALL, ()])
@pytest.mark.parametrize("flow", [hands_on, reads_it], ids=["handed on", "read"])
async def test_killed_behind_each_record_it_ends_as_it_would_have(
    tmp_path: Path, flow: AnyWorkflow, licensed: Sequence[str]
) -> None:
    """Also where the result must be told anew, which is known only once its code has asked for it."""
    whole = await run(tmp_path, flow, licensed)
    effects = set(EFFECTS)
    assert whole.outcome()["outcome"] is Settled.SUCCESS
    for cut in range(3, len(whole.records)):
        again = BodyBench(tmp_path, flow, licensed)
        await again.take_over(whole.records[:cut])
        await over(again)
        assert again.outcome() == whole.outcome(), cut
        assert set(EFFECTS) == effects, cut
        if flow is hands_on and again.local.results:
            assert longest(again.local.results) < 100, cut


async def test_code_that_has_come_to_read_it_is_told_and_the_other_way_round(tmp_path: Path) -> None:
    handed = await run(tmp_path, hands_on)
    at = next(at for at, one in enumerate(handed.events()) if isinstance(one, ev.CallPlanned) and one.call_key)
    again = BodyBench(tmp_path, reads_it, ALL)
    await again.take_over(handed.records[:at])
    await over(again)
    assert again.outcome()["result"] == ["x2x 10", 2]
    assert longest(again.local.results) > LARGE

    read_first = await run(tmp_path, reads_it)
    at = next(at for at, one in enumerate(read_first.events()) if getattr(one, "entry", {}).get("tool") == "keep")
    back = BodyBench(tmp_path, hands_on, ALL)
    await back.take_over(read_first.records[:at])
    await over(back)
    assert back.outcome()["result"] == [f"x2{KEPT}", LARGE + 2, 2]
    assert longest(back.local.results) < 100


async def test_what_leads_nowhere_is_not_planned_and_says_where(tmp_path: Path) -> None:
    @workflow(name="flow", tools=TOOLS)
    async def astray(ctx: WorkflowContext) -> str:
        found = await ctx.reference(page, name="x")
        return await ctx.call(keep, text=found.at("/no/such"))

    bench = await run(tmp_path, astray)
    reason = bench.outcome()["reason"]
    assert bench.outcome()["outcome"] is Settled.FAILED
    assert reason.startswith("CallRefused: keep.")
    assert "#/no/such: the result has no such place" in reason
    assert not EFFECTS
    assert "xxx" not in str(bench.events())


async def test_an_argument_of_another_type_is_refused_and_nothing_called(tmp_path: Path) -> None:
    """What stands there is known only now; the schema is asked then."""

    @workflow(name="flow", tools=TOOLS)
    async def mistyped(ctx: WorkflowContext) -> str:
        found = await ctx.reference(page, name="x")
        return await ctx.call(keep, text=found.at("/links"))

    bench = await run(tmp_path, mistyped)
    assert bench.outcome()["outcome"] is Settled.FAILED
    assert "/text" in bench.outcome()["reason"]
    assert not EFFECTS


async def test_while_the_store_is_away_it_waits_and_what_was_done_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aetheris.tool_executor.body_hosts._BLOB_PAUSE_S", 0.001)
    asked = 0
    bench = BodyBench(tmp_path, hands_on, ALL)
    load = bench.parts.performer.load

    async def away(refs: Sequence[Any]) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        if asked < 5:
            raise BlobsUnreachable("away")
        return await load(refs)

    monkeypatch.setattr(bench.parts.performer, "load", away)
    EFFECTS.clear()
    await bench.born()
    await over(bench)
    assert bench.outcome()["result"] == [f"x2{KEPT}", LARGE + 2, 2]
    assert asked >= 5


async def test_a_body_that_forges_a_reference_plans_nothing(tmp_path: Path) -> None:
    """Of what it has not called, of what has failed, of its own node."""
    for target in ("p#", "nobody#", "do.0000000000000000.1#"):

        @workflow(name="flow", tools=TOOLS)
        async def forges(ctx: WorkflowContext, target: str = target) -> Any:
            held = await ctx.reference(read, n=1)
            forged = type(held)(target.removesuffix("#"))
            return await ctx.call(keep, text=forged.at("/body"))

        bench = await run(tmp_path, forges)
        assert bench.outcome()["outcome"] is Settled.FAILED
        assert f"it can't be given {target}" in bench.outcome()["reason"]
        assert not EFFECTS
