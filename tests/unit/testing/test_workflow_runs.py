"""Workflows in memory: run on the services' own cores, killed everywhere; and docs/workflows.md, executed."""

import asyncio
import re
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.job_log import LoggedEvent
from aetheris.sdk import ToolContext, tool
from aetheris.sdk.client import Goal
from aetheris.sdk.outcomes import Failed
from aetheris.sdk.workflows import Misuse, OutcomeUnknown, ToolFailed, WorkflowContext, own, undo, workflow
from aetheris.sdk.workflows.body_replay import NoWorkflow, replay_body
from aetheris.testing import (
    NODE,
    BodyDiffers,
    JobUnderTest,
    MemorySystem,
    PlanRefused,
    crash_after,
    duplicate_delivery,
    lost_answer,
    run_workflow,
)
from aetheris.tool_executor.core.tries import FIRST_CALLS
from tests.testkit.system import REPOSITORY

pytestmark = pytest.mark.timeout(300)
MADE: Counter[str] = Counter()


@tool(effect_class="idempotent")
async def pay(ctx: ToolContext, order: str, amount: int) -> str:
    MADE[ctx.external_key] += 1
    return f"{order}-{amount}"


@tool(effect_class="idempotent")
async def repay(ctx: ToolContext, payment: str) -> None:
    MADE[f"{ctx.external_key} {payment}"] += 1


@tool(effect_class="pure")
async def quote(order: str) -> int:
    return len(order)


@tool(effect_class="idempotent")
async def refuses(order: str) -> None:
    raise Failed(f"no {order}")


TOOLS = [pay, repay, quote, refuses]


@workflow(tools=TOOLS)
async def shop(ctx: WorkflowContext, order: str) -> list[Any]:
    amounts = await asyncio.gather(*(ctx.call(quote, order=order * n) for n in range(1, 4)))
    wanted = await ctx.signal("wanted")
    async with asyncio.timeout(3600):
        answers = await ctx.approval("Pay?")
    paid = await ctx.using(id="pay", undo=undo(repay, payment=own())).call(pay, order=order, amount=sum(amounts))
    try:
        await ctx.call(refuses, order=order)
    except ToolFailed as no:
        refused = no.reason
    else:
        refused = ""
    await ctx.sleep(20 * 86_400)
    again = [await ctx.call(pay, order=order, amount=1) for _ in range(2)]
    return [paid, wanted, answers, refused, *again, (await ctx.now()).year]


def plan(of: str, **args: Any) -> dict[str, Any]:
    return {"nodes": [{"id": NODE, "kind": "workflow", "tool": of, "args": args}]}


def test_a_workflow_whose_body_dies_anywhere_does_the_same() -> None:
    job = run_workflow(shop, {"order": "o"}, signals={"wanted": 7}, answers=[{}], crash="everywhere")
    assert job.status == "completed"
    assert job.result(NODE) == ["o-6", 7, {}, "no o", "o-1", "o-1", 2026]
    assert job.calls("pay") == 3


def test_one_that_is_asleep_is_woken_by_what_it_waits_for() -> None:
    system = MemorySystem(shop, *TOOLS)
    job = system.run(plan("shop", order="o"), answers=[{}])
    assert job.status != "completed"
    assert "call_planned" in job.events
    job = system.signal(job, "wanted", 7)
    assert job.status == "completed"


@pytest.mark.parametrize("what", ["arguments", "order of an effect", "end"])
def test_code_that_does_something_else_each_time_is_told_by_what_differs(what: str) -> None:
    runs = Counter[str]()

    @workflow(tools=TOOLS)
    async def odd(ctx: WorkflowContext) -> int:
        runs["all"] += 1
        if what == "arguments":
            await ctx.using(id="one").call(pay, order="o", amount=runs["all"])
        elif what == "order of an effect":
            await ctx.call(pay, order=f"run {runs['all']}", amount=1)
        await ctx.call(pay, order="o", amount=2)
        return runs["all"] if what == "end" else 0

    with pytest.raises(BodyDiffers, match=r"odd: its body died at moment \d+ of \d+: .*"):
        run_workflow(odd, {}, crash="everywhere")


def test_what_is_uncaught_fails_the_job_and_what_was_done_is_undone() -> None:
    @workflow(tools=TOOLS)
    async def fails(ctx: WorkflowContext) -> None:
        await ctx.using(undo=undo(repay, payment=own())).call(pay, order="u", amount=1)
        await ctx.call(refuses, order="u")

    job = run_workflow(fails, {})
    assert job.status == "failed"
    assert "ToolFailed" in (job.step(NODE).reason or "")


def test_a_lost_answer_is_no_sure_failure() -> None:
    @tool(effect_class="opaque", irreversible=False, on_in_doubt="fail")
    def once() -> str:
        return "done"

    @workflow(tools=[once])
    async def asks(ctx: WorkflowContext) -> str:
        try:
            return await ctx.call(once)
        except ToolFailed:
            return "again"
        except OutcomeUnknown:
            return "unknown"

    job = MemorySystem(asks, once).run(plan("asks"), faults=[lost_answer(once)])
    assert job.status == "completed", job.why
    assert job.result(NODE) == "unknown"


def test_fakes_are_called_in_the_place_of_tools() -> None:
    @workflow(tools=TOOLS)
    async def pays(ctx: WorkflowContext) -> str:
        return await ctx.call(pay, order="o", amount=1)

    async def fake(ctx: ToolContext, order: str, amount: int) -> str:
        return f"fake {ctx.node_id[:4]} {order} {amount}"

    assert run_workflow(pays, {}, fakes={pay: fake}).result(NODE) == "fake pay. o 1"


def logged(job: JobUnderTest) -> list[LoggedEvent]:
    return [
        LoggedEvent(place, Record(Topic.JOBS_EVENTS, 0, place, 0, None, (), b""), event)
        for place, event in enumerate(job.log)
    ]


def test_code_is_replayed_over_a_record_and_calls_nothing() -> None:
    job = run_workflow(shop, {"order": "o"}, signals={"wanted": 7}, answers=[{}])
    made = MADE.copy()
    same = replay_body(shop, logged(job), {})
    assert (same.diverges, same.first, same.end) == (False, "", "returns")
    assert (same.new, same.reads, same.unasked) == ((), (), ())
    assert made == MADE


def test_a_replay_names_the_first_place_where_code_parts_ways() -> None:
    @workflow("shop", tools=TOOLS)
    async def before(ctx: WorkflowContext, order: str) -> str:
        await ctx.using(id="pay").call(pay, order=order, amount=1)
        await ctx.call(pay, order=order, amount=2)
        return order

    @workflow("shop", tools=TOOLS)
    async def reordered(ctx: WorkflowContext, order: str) -> str:
        await ctx.call(pay, order=order, amount=2)
        await ctx.using(id="pay").call(pay, order=order, amount=1)
        await ctx.call(pay, order=order, amount=3)
        return order

    @workflow("shop", tools=TOOLS)
    async def inserted(ctx: WorkflowContext, order: str) -> str:
        await ctx.call(pay, order="new", amount=9)
        return await before.function(ctx, order)

    @workflow("shop", tools=TOOLS)
    async def reads_first(ctx: WorkflowContext, order: str) -> str:
        await ctx.call(quote, order="new")
        return await before.function(ctx, order)

    @workflow("shop", tools=TOOLS)
    async def changed(ctx: WorkflowContext, order: str) -> str:
        await ctx.using(id="pay").call(pay, order=order, amount=3)
        return order

    @workflow("shop", tools=TOOLS)
    async def left_out(ctx: WorkflowContext, order: str) -> str:
        await ctx.using(id="pay").call(pay, order=order, amount=1)
        return order

    record = logged(run_workflow(before, {"order": "o"}))
    assert replay_body(reordered, record, {}).end == "waits"  # for the new call
    assert not replay_body(reordered, record, {}).diverges
    assert replay_body(inserted, record, {}).first.startswith(f"{NODE}.pay is recorded, and is not asked for: the code")
    found = replay_body(reads_first, record, {})
    assert (found.diverges, found.end, len(found.reads)) == (False, "waits", 1)
    assert replay_body(changed, record, {}).changed == (f"{NODE}.pay",)
    assert replay_body(left_out, record, {}).first.endswith("is not asked for: the code returns")
    with pytest.raises(NoWorkflow):
        replay_body(shop, [], {})


def test_the_page_s_example_runs_and_survives_every_death() -> None:
    text = (REPOSITORY / "docs" / "workflows.md").read_text()
    (code,) = re.findall(r"```python\n(from aetheris.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"__name__": "shop"}
    exec(code, names)  # noqa: S102  our own page
    given = {"order": "o-1", "mail": "ann@example.com"}
    job = run_workflow(names["handle"], given, signals={"checkout": {"amount": 5}}, crash="everywhere")
    assert job.result(NODE) == "paid 5 for o-1"


@pytest.mark.parametrize("declined", [False, True])
def test_the_readme_s_first_example_pays_and_mails_once_whatever_dies(*, declined: bool) -> None:
    text = (REPOSITORY / "README.md").read_text()
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    made = Counter[str]()

    class Provider:
        async def charge(self, order: str, amount: int, *, key: str) -> str:
            if declined:
                raise Failed("no money")
            made[f"{order} {amount} {key}"] += 1
            return "p-1"

        async def send(self, to: str, text: str, *, message_id: str) -> None:
            made[f"{to} {text} {message_id}"] += 1

    names: dict[str, Any] = {"__name__": "shop", "payments": Provider(), "mails": Provider()}
    exec(code, names)  # noqa: S102  our own page
    given = {"order": "o-1", "mail": "ann@example.com", "amount": 5}
    job = run_workflow(names["handle"], given, crash="everywhere")
    assert job.result(NODE) == ("declined" if declined else "p-1")
    assert (job.calls("charge"), job.calls("send_mail")) == (1, 1)
    assert len(made) == (1 if declined else 2)


def test_a_plan_of_a_workflow_takes_what_its_code_takes() -> None:
    assert shop.plan(order="o") == plan("shop", order="o")
    with pytest.raises(Misuse):
        shop.plan(order=["o"])  # type: ignore[arg-type]
    with pytest.raises(Misuse):
        shop.plan("o")


def test_functions_of_its_own_are_recorded_and_only_those_that_read_run_again() -> None:
    ran = Counter[str]()

    def rendered(order: str, times: int) -> str:
        ran["rendered"] += 1
        return order * times

    async def written(text: str) -> list[str]:
        ran["written"] += 1
        return [text]

    def refused() -> None:
        raise Failed("no such file")

    @workflow(tools=[pay])
    async def records(ctx: WorkflowContext) -> list[Any]:
        text = await ctx.record("render", rendered, "ab", 2, reads_only=True)
        again = await ctx.record("render", rendered, "ab", 2, reads_only=True)
        lines = await ctx.record("write", written, text, reads_only=False)
        try:
            await ctx.record("refuse", refused, reads_only=False)
        except ToolFailed as no:
            return [text, again, lines, no.reason, await ctx.call(pay, order=text, amount=1)]
        return []

    job = run_workflow(records, {}, crash="everywhere")
    assert job.result(NODE) == ["abab", "abab", ["abab"], "no such file", "abab-1"]
    assert job.calls("local.act") == 2
    ran.clear()
    assert run_workflow(records, {}).status == "completed"
    assert ran == {"rendered": 2, "written": 1}


def test_of_an_own_function_that_acts_and_whose_end_nobody_saw_a_person_is_asked() -> None:
    ran = Counter[str]()

    def acts() -> None:
        ran["acts"] += 1

    @workflow(tools=[pay])
    async def records(ctx: WorkflowContext) -> str:
        await ctx.record("act", acts, reads_only=False)
        return await ctx.call(pay, order="o", amount=1)

    system = MemorySystem(records, pay)
    job = system.run(plan("records"), faults=[crash_after("local.act")])
    assert (job.status, ran["acts"], len(job.parked)) == ("waiting", 1, 1)
    job = system.resolve(job, job.parked[0], "happened")
    assert (job.status, job.result(NODE), ran["acts"]) == ("completed", "o-1", 1)


@pytest.mark.parametrize("tool", ["local.read", "local.act"])
def test_nobody_but_a_workflow_calls_its_own_functions(tool: str) -> None:
    system = MemorySystem(shop, *TOOLS)
    with pytest.raises(PlanRefused, match="no tool local"):
        system.run({"nodes": [{"id": "a", "tool": tool, "args": {"name": "x", "args": []}}]})
    with pytest.raises(PlanRefused, match="matches no registered tool"):
        MemorySystem(shop, *TOOLS, model={}).run(Goal(goal="do", tools=[tool]))


def test_who_is_first_and_which_time_came_is_the_same_whatever_dies() -> None:
    @workflow(tools=TOOLS)
    async def waits(ctx: WorkflowContext) -> list[Any]:
        asked = (ctx.call(quote, order="o" * n) for n in range(1, 5))
        ended = [done.result() async for done in ctx.as_completed(*asked)]
        place, amount = await ctx.first(ctx.call(pay, order="a", amount=1), ctx.call(pay, order="b", amount=2))
        await ctx.call(pay, order=f"{place} {amount}", amount=sum(ended))
        late = await ctx.now() + timedelta(hours=1)
        try:
            async with ctx.timeout_at(late):
                await ctx.signal("never")
        except TimeoutError:
            ended.append(-1)
        async with ctx.timeout_at(late + timedelta(days=1)):
            await ctx.sleep_until(late + timedelta(hours=1))
        with pytest.raises(Misuse):
            ctx.timeout_at(datetime(2026, 1, 1))  # noqa: DTZ001
        with pytest.raises(ToolFailed):
            await ctx.first(ctx.call(refuses, order="x"), ctx.sleep(1000))
        return [len(ended), ended[-1], (await ctx.now()) >= late + timedelta(hours=1)]

    job = run_workflow(waits, {}, crash="everywhere", races=True)
    assert job.result(NODE) == [5, -1, True]
    assert job.calls("pay") == 3


def test_a_workflow_of_more_calls_than_its_first_body_can_plan_goes_on_in_the_next() -> None:
    @workflow(tools=[quote])
    async def many(ctx: WorkflowContext) -> int:
        return sum([await ctx.call(quote, order="ab") for _ in range(FIRST_CALLS + 5)])

    job = run_workflow(many, {})
    assert job.result(NODE) == 2 * (FIRST_CALLS + 5)
    assert job.calls("quote") == FIRST_CALLS + 5


@workflow(tools=[pay])
async def packs(ctx: WorkflowContext, order: str) -> str:
    return await ctx.call(pay, order=order, amount=1)


@workflow(tools=[], starts=[packs])
async def packs_all(ctx: WorkflowContext, orders: list[str]) -> list[str]:
    return [await ctx.child(packs, order=order) for order in orders]


@pytest.mark.parametrize("crash", [None, "everywhere"])
def test_a_log_that_has_everything_twice_is_told_once(crash: Any) -> None:
    MADE.clear()
    twice = [duplicate_delivery()]
    job = run_workflow(shop, {"order": "o"}, signals={"wanted": 5}, answers=[{}], faults=twice, crash=crash)
    assert (job.status, job.why, job.calls(pay), job.calls(refuses)) == ("completed", None, 3, 1)
    job = run_workflow(packs_all, {"orders": ["a", "b"]}, faults=twice, crash=crash)
    assert (job.result(NODE), job.status) == (["a-1", "b-1"], "completed")
