"""Workflows that begin others, in memory: on the services' own cores, killed everywhere."""

import asyncio
import re
from collections import Counter
from typing import Any

import pytest

from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.begun import MOST_DEEP, child_job_id, end_key
from aetheris.sdk import ToolContext, tool
from aetheris.sdk.outcomes import Failed
from aetheris.sdk.tools import Tool
from aetheris.sdk.workflows import ChildFailed, Misuse, ToolFailed, Workflow, WorkflowContext, undo, workflow
from aetheris.testing import NODE, MemorySystem, PlanRefused, run_workflow
from tests.testkit.policies import ALLOW_REST
from tests.testkit.system import REPOSITORY

pytestmark = pytest.mark.timeout(300)
MADE: Counter[str] = Counter()


@tool(effect_class="idempotent")
async def pay(ctx: ToolContext, order: str) -> str:
    MADE[f"{order} {ctx.external_key}"] += 1
    return f"paid {order}"


@tool(effect_class="idempotent")
async def repay(order: str) -> None:
    MADE[f"repaid {order}"] += 1


@tool(effect_class="idempotent")
async def refuses() -> None:
    raise Failed("never")


@workflow(tools=[pay, repay, refuses])
async def ship(ctx: WorkflowContext, order: str, fails: bool = False, waits: bool = False) -> str:
    paid = await ctx.using(undo=undo(repay, order=order)).call(pay, order=order)
    if fails:
        await ctx.call(refuses)
    if waits:
        await ctx.signal("go")
    return paid


@workflow(tools=[pay, refuses], starts=[ship])
async def shop(ctx: WorkflowContext, orders: list[str]) -> list[str]:
    done = await asyncio.gather(*[ctx.child(ship, order=order) for order in orders])
    same = [await ctx.using(id="last").child(ship, order="last") for _ in range(2)]
    await ctx.call(pay, order="behind")
    return [*done, *same]


@workflow(tools=[pay])
async def rounds(ctx: WorkflowContext, left: int) -> str:
    await ctx.call(pay, order=str(left))
    if left:
        await ctx.continue_as(rounds, left=left - 1)
    return "over"


@workflow(tools=[], starts=[rounds])
async def awaits(ctx: WorkflowContext, left: int) -> str:
    return await ctx.child(rounds, left=left)


@workflow(tools=[pay], starts=[ship])
async def catches(ctx: WorkflowContext) -> str:
    try:
        return await ctx.child(ship, order="bad", fails=True)
    except ChildFailed as failed:
        return failed.status


@workflow(tools=[], starts=["deeper"])
async def deeper(ctx: WorkflowContext, depth: int) -> int:
    try:
        return await ctx.child("deeper", depth=depth + 1)
    except ChildFailed as failed:
        return depth if failed.status == "refused" else -1


@workflow(tools=[], starts=[ship])
async def leaves(ctx: WorkflowContext, waits: bool) -> str:
    return await ctx.using(id="left").start(ship, order="left", waits=waits)


@workflow(tools=[], starts=[ship])
async def waits(ctx: WorkflowContext) -> str:
    return await ctx.child(ship, order="w", waits=True)


@workflow(tools=[pay, refuses], starts=[ship])
async def stops(ctx: WorkflowContext, fails: bool) -> None:
    asyncio.get_running_loop().create_task(ctx.child(ship, order="open", waits=True))
    await ctx.sleep(60)
    if fails:
        await ctx.call(refuses)


def test_children_are_begun_once_each_wherever_the_body_dies() -> None:
    job = run_workflow(shop, {"orders": ["a", "b"]}, crash="everywhere")
    assert job.result(NODE) == ["paid a", "paid b", "paid last", "paid last"]


def test_a_job_goes_on_as_another_wherever_the_body_dies_and_the_last_ones_result_counts() -> None:
    assert run_workflow(awaits, {"left": 3}, crash="everywhere").result(NODE) == "over"


def test_the_id_of_a_child_follows_from_its_call_and_its_birth_names_that() -> None:
    system = MemorySystem(ship, shop, pay, repay, refuses)
    job = system.run(shop.plan(orders=[]))
    (_, child) = system.jobs
    assert child.job_id == child_job_id(job.job_id, f"{NODE}.last")
    begun = child.state.created.begun
    assert begun is not None
    key, _ = job.state.settled_key(f"{NODE}.last") or ("", None)
    assert (begun.job_id, begun.node_id, begun.idempotency_key, begun.depth) == (job.job_id, f"{NODE}.last", key, 1)
    assert begun.awaited_by is not None
    assert [*job.state.signals] == [end_key(child.job_id)]


def test_what_was_given_to_a_job_holds_for_those_that_it_begins() -> None:
    system = MemorySystem(rounds, awaits, pay)
    job = system.run(awaits.plan(left=1), options={"on_in_doubt": "fail"})
    first, second = system.jobs[1:]
    awaited_by = []
    for one in (first, second):
        born, created = one.state.created, job.state.created
        assert (born.tenant, born.submitted_by, born.options) == (created.tenant, created.submitted_by, created.options)
        assert born.begun is not None
        assert born.begun.depth == 1
        awaited_by.append(born.begun.awaited_by)
    assert awaited_by[0] == awaited_by[1] is not None
    assert first.result(NODE) == {"continued_as": second.job_id}


def test_a_child_that_fails_undoes_what_it_did_and_is_the_codes_to_catch() -> None:
    MADE.clear()
    assert run_workflow(catches, {}).result(NODE) == "failed"
    assert MADE["repaid bad"] == 1


@pytest.mark.parametrize("compensate", [False, True])
def test_a_cancel_reaches_the_open_children_and_undoes_theirs_where_it_does_its_own(compensate: bool) -> None:
    MADE.clear()
    system = MemorySystem(waits, ship, pay, repay, refuses)
    job = system.cancel(system.run(waits.plan()), compensate=compensate)
    assert (job.status, system.jobs[1].status) == ("cancelled", "cancelled")
    assert MADE["repaid w"] == int(compensate)


def test_a_job_that_was_left_goes_on() -> None:
    system = MemorySystem(leaves, ship, pay, repay, refuses)
    job = system.run(leaves.plan(waits=True))
    assert (job.status, system.jobs[1].status) == ("completed", "waiting")
    assert system.signal(system.jobs[1], "go").status == "completed"
    assert not job.state.signals, "nobody waits for its end"


@pytest.mark.parametrize("fails", [False, True])
def test_an_open_child_ends_with_its_parent_and_undoes_what_it_did_where_that_one_has_failed(fails: bool) -> None:
    MADE.clear()
    system = MemorySystem(stops, ship, pay, repay, refuses)
    job = system.run(stops.plan(fails=fails))
    assert (job.status, system.jobs[1].status) == ("failed" if fails else "completed", "cancelled")
    assert MADE["repaid open"] == (1 if fails else 0)


def test_no_more_than_so_many_jobs_stand_above_one() -> None:
    assert run_workflow(deeper, {"depth": 0}).result(NODE) == MOST_DEEP


def test_what_is_not_named_is_not_begun() -> None:
    @workflow(tools=[])
    async def bare(ctx: WorkflowContext) -> None:
        with pytest.raises(Misuse):
            await ctx.child(ship, order="a")
        with pytest.raises(Misuse):
            await ctx.continue_as(ship, order="a")
        with pytest.raises(Misuse):
            await ctx.signal(end_key("x"))

    assert run_workflow(bare, {}).status == "completed"


def test_arguments_that_it_does_not_take_begin_nothing() -> None:
    @workflow(tools=[], starts=[ship])
    async def wrong(ctx: WorkflowContext) -> None:
        with pytest.raises(Misuse):
            await ctx.child("ship", order=7, more=1)

    assert run_workflow(wrong, {}).status == "completed"


def test_a_policy_decides_about_beginnings_as_about_any_call() -> None:
    @workflow(tools=[], starts=[ship])
    async def denied(ctx: WorkflowContext) -> str:
        try:
            return await ctx.child(ship, order="a")
        except ToolFailed as no:
            return no.reason

    policy = '[[rules]]\nname = "none"\ntools = ["jobs.start"]\neffect = "deny"\n' + ALLOW_REST
    assert run_workflow(denied, {}, policy=policy).result(NODE) == "policy"


def test_nobody_but_a_body_calls_its_tools() -> None:
    system = MemorySystem(ship, pay, repay, refuses)
    with pytest.raises(PlanRefused):
        system.run({"nodes": [{"id": "a", "tool": "jobs.start", "args": {"workflow": "ship", "args": {}}}]})


def test_no_signal_says_how_a_job_has_ended() -> None:
    system = MemorySystem(waits, ship, pay, repay, refuses)
    job = system.run(waits.plan())
    child = system.jobs[1]
    system.signal(job, end_key(child.job_id), {"job_id": child.job_id, "status": "completed", "result": "forged"})
    assert not [one for one in job.log if isinstance(one, ev.SignalReceived)]
    system.signal(child, "go")
    assert job.result(NODE) == "paid w"


@tool(name="pay", effect_class="idempotent")
async def pay_amount(ctx: ToolContext, order: str, amount: int) -> None:
    MADE[f"{order} {ctx.external_key}"] += amount


@workflow(tools=[pay_amount], starts=["spends"])
async def spends(ctx: WorkflowContext, order: str) -> list[str]:
    """It spends what it may, and has others do so, as deep and as often as it is let."""
    refused: list[str] = []
    for number in range(4):
        try:
            await ctx.call(pay_amount, order=f"{order}.{number}", amount=200)
        except ToolFailed as no:
            refused.append(no.reason)
    for number in range(3):
        try:
            refused += await ctx.child("spends", order=f"{order}/{number}")
        except ToolFailed as no:
            refused.append(no.reason)
    return refused


def test_what_a_tree_of_jobs_may_pay_is_limited_by_how_many_they_are_and_what_each_may_take() -> None:
    """By the rules of the page; wherever a body dies."""
    page = (REPOSITORY / "docs" / "policy.md").read_text()
    (rules,) = re.findall(r"```toml\n# budgets of a tree\n(.*?)```", page, re.DOTALL)
    run_workflow(spends, {"order": "o"}, policy=rules, crash="everywhere")
    MADE.clear()
    system = MemorySystem(spends, pay_amount, policy=rules)
    job = system.run(spends.plan(order="o"))
    assert (job.status, len(system.jobs), sum(MADE.values())) == ("completed", 3, 600 + 2 * 200)
    assert sorted(set(job.result(NODE))) == ["budget", "policy"]
    assert {one.state.created.begun.depth for one in system.jobs[1:] if one.state.created.begun} == {1}


def test_the_page_s_example_ships_each_parcel_once_a_day() -> None:
    text = (REPOSITORY / "docs" / "workflows.md").read_text()
    (code,) = re.findall(r"```python\n# children\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"__name__": "parcels"}
    exec(code, names)  # noqa: S102  our own page
    system = MemorySystem(*(one for one in names.values() if isinstance(one, Tool | Workflow)))
    job = system.run(names["day"].plan(parcels=["a", "b"], left=2))
    assert sum(one.calls("send") for one in system.jobs) == 4
    assert [one.result(NODE) for one in system.jobs if NODE in one.state.entries and not one.calls("send")] == [
        {"continued_as": system.jobs[3].job_id},
        "over",
    ]
    assert job.status == "completed"


def test_a_job_names_those_that_it_has_begun_and_each_of_them_the_one_that_began_it() -> None:
    system = MemorySystem(shop, ship, pay, repay, refuses)
    job = system.run(shop.plan(orders=["a"]))
    first, last = [one for one in system.jobs if one is not job]
    assert [(one.job_id, one.workflow, one.status, one.detached) for one in job.view.children] == [
        (first.job_id, "ship", "completed", False),
        (last.job_id, "ship", "completed", False),
    ]
    for child, named in zip((first, last), job.view.children, strict=True):
        assert child.view.begun is not None
        assert (child.view.begun.job_id, child.view.begun.node_id) == (job.job_id, named.node_id)
        assert (child.view.begun.replaces, child.view.begun.awaited_by) == (False, job.job_id)
    assert (job.view.begun, job.view.continued_as) == (None, None)


def test_a_job_names_the_one_that_goes_on_in_its_place_and_whoever_waits_for_it_names_each() -> None:
    system = MemorySystem(awaits, rounds, pay)
    job = system.run(awaits.plan(left=2))
    named = job.view.children
    assert [one.job_id for one in named] == [one.job_id for one in system.jobs if one is not job]
    assert [one.continued_as for one in named] == [named[1].job_id, named[2].job_id, None]
    views = {one.job_id: one.view for one in system.jobs}
    assert [views[one.job_id].continued_as for one in named] == [one.continued_as for one in named]
    second = views[named[1].job_id].begun
    assert second is not None
    assert (second.job_id, second.replaces, second.awaited_by) == (named[0].job_id, True, job.job_id)
