"""Bodies of workflows: told one by one they decide alike, whatever comes when; what they may ask for, and what not."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from aetheris.protocol.base.child_ids import child_id
from aetheris.protocol.plan.forms import FormField
from aetheris.sdk import Result, ToolContext, tool
from aetheris.sdk.outcomes import Failed
from aetheris.sdk.schema import DeclarationError
from aetheris.sdk.workflows import (
    OutcomeUnknown,
    ToolFailed,
    Workflow,
    WorkflowCancelled,
    WorkflowContext,
    own,
    undo,
    workflow,
)
from aetheris.sdk.workflows.bodies import Asked, BodyRaised, BodySaid, BodyStart, CallSettled, Idle, Returned
from aetheris.sdk.workflows.local_bodies import LocalBodies

Answers = Callable[[dict[str, Any]], CallSettled]
SEEDS = 300


class Receipt(BaseModel):
    number: str


@tool("note", effect_class="idempotent")
async def note(ctx: ToolContext, text: str) -> str:
    return f"{ctx.external_key} {text}"


@tool("charge", effect_class="idempotent")
async def charge(ctx: ToolContext, order: str, amount: int = 5) -> Receipt:
    return Receipt(number=f"{ctx.external_key} {order} {amount}")


@tool("refund", effect_class="opaque", irreversible=True)
def refund(charge_number: str) -> Result:
    return Result(charge_number)


TOOLS = [note, charge, refund]


def _chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311  a repeatable test


def done(node: dict[str, Any]) -> CallSettled:
    return CallSettled(node_id=node["id"], outcome="success", result=node.get("args", {}).get("text"))


class Bench:
    """One body after the other of one workflow, over one log of settled calls."""

    def __init__(self, of: Workflow[..., Any], answers: Answers = done, **args: Any) -> None:
        self.of = of
        self.answers = answers
        self.args = args
        self.log: list[CallSettled] = []
        self.asked: list[dict[str, Any]] = []
        self.last: BodySaid | None = None
        self._bodies = LocalBodies([of], self._hear)

    def begin(self) -> None:
        self.asked.clear()
        self._bodies.begin(BodyStart("body", self.of.key, "job-1", "w", self.args), list(self.log))

    def settle(self, *settled: CallSettled) -> None:
        self.log.extend(settled)
        self._bodies.settled("body", settled)

    def stop(self) -> None:
        self._bodies.stop("body", "cancelled")

    def go_on(self, chance: random.Random, steps: int = 10_000) -> None:
        """Settle what it waits for, in any order, several at a time."""
        for _ in range(steps):
            if not isinstance(self.last, Idle):
                return
            settled = {one.node_id for one in self.log}
            waits = [node for node in self.asked if node["id"] not in settled and node["id"] in self.last.waits_for]
            some = chance.sample(waits, chance.randint(1, min(3, len(waits))))
            self.settle(*(self.answers(one) for one in some))

    @property
    def ids(self) -> list[str]:
        return [one["id"] for one in self.asked]

    def _hear(self, said: BodySaid) -> None:
        if isinstance(said, Asked):
            self.asked.append(said.node)
        else:
            self.last = said


def ran(of: Workflow[..., Any], answers: Answers = done, **args: Any) -> Bench:
    bench = Bench(of, answers, **args)
    bench.begin()
    bench.go_on(_chance(1))
    return bench


async def _says(ctx: WorkflowContext, text: str) -> str:
    return await ctx.call(note, text=text)


@workflow(tools=TOOLS)
async def races(ctx: WorkflowContext) -> list[str]:
    """Every kind of race that asyncio has; who wins is said in the next call."""
    won = list[str]()
    tasks = [asyncio.create_task(_says(ctx, f"wait-{n}")) for n in range(4)]
    while tasks:
        over, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        won += [one.result() for one in over]
        await ctx.call(note, text=f"then {won}")
        tasks = [one for one in tasks if one not in over]
    for first in asyncio.as_completed([asyncio.create_task(_says(ctx, f"as-{n}")) for n in range(3)]):
        won.append(await first)
        await ctx.call(note, text=f"then {won[-1]}")
    try:
        async with asyncio.timeout(30):
            await asyncio.gather(*(_says(ctx, f"late-{n}") for n in range(3)))
    except TimeoutError:
        won.append("timed out")
    async with asyncio.TaskGroup() as group:
        queue = asyncio.Queue[str]()
        for n in range(3):
            group.create_task(queue.put(await _says(ctx, f"queue-{n}")))
        group.create_task(ctx.sleep(1))
        won.append(await queue.get())
    await ctx.call(note, text=f"last {won} {sorted({await _says(ctx, 'a'), await _says(ctx, 'b')})}")
    return won


def test_whatever_comes_first_another_run_over_the_same_log_decides_alike() -> None:
    ends = set[tuple[str, ...]]()
    for seed in range(SEEDS):
        chance = _chance(seed)
        first = Bench(races)
        first.begin()
        first.go_on(chance, chance.randint(0, 8))  # it dies there, or ends
        before = list(first.ids)
        first.begin()
        assert first.ids == before
        first.go_on(chance)
        assert isinstance(first.last, Returned)
        again = Bench(races)
        again.log = list(first.log)
        again.begin()
        assert (again.asked, again.last) == (first.asked, first.last)
        ends.add(tuple(first.last.result))
    assert len(ends) > SEEDS // 3  # latency does decide


@workflow(tools=TOOLS)
async def many_races(ctx: WorkflowContext) -> list[str]:
    """Who wins among hundreds, in each way to wait for them; and what is called is called by who has won."""
    tasks = [asyncio.create_task(_says(ctx, f"task-{n}")) for n in range(200)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    won = [next(one.result() for one in tasks if one.done())]
    await ctx.call(note, text=f"first {won}")
    await asyncio.gather(*tasks)
    async with asyncio.TaskGroup() as group:
        for n in range(20):
            group.create_task(_says(ctx, f"group-{n}")).add_done_callback(lambda one: won.append(one.result()))
    won.append((await ctx.first(*(_says(ctx, f"first-{n}") for n in range(20))))[1])
    won += [done.result() async for done in ctx.as_completed(*(_says(ctx, f"done-{n}") for n in range(20)))]
    await ctx.call(note, text=f"last {won}")
    return won


def test_who_wins_among_hundreds_wins_again_in_each_of_fifty_runs_that_are_killed() -> None:
    chance = _chance(6)
    bench = Bench(many_races)
    bench.begin()
    for _ in range(50):
        bench.go_on(chance, chance.randint(0, 5))
        before, last = list(bench.ids), bench.last
        bench.begin()  # it was killed
        assert (bench.ids, bench.last) == (before, last)
    bench.go_on(chance)
    assert isinstance(bench.last, Returned)
    assert len(bench.last.result) == 42
    assert (len(bench.ids), len(set(bench.ids))) == (262, 262)


def test_equal_calls_are_numbered_and_named_ones_are_one() -> None:
    @workflow(tools=TOOLS)
    async def handle(ctx: WorkflowContext) -> None:
        for _ in range(3):
            await ctx.call(note, text="the same")
        for _ in range(2):
            await ctx.using(id="once").call(note, text="the same")

    ids = ran(handle).ids
    assert ids == [*(child_id("w", "note", {"text": "the same"}, n) for n in (1, 2, 3)), "w.once"]


def test_defaults_are_said_and_options_go_along() -> None:
    @workflow(tools=TOOLS)
    async def handle(ctx: WorkflowContext) -> str:
        options = ctx.using(id="pay", undo=undo(refund, charge_number=own("/number")), timeout=timedelta(seconds=9))
        return (await options.call(charge, order="o-1")).number

    bench = ran(handle, lambda node: CallSettled(node_id=node["id"], outcome="success", result={"number": "c-1"}))
    assert bench.last == Returned("body", "c-1")
    (node,) = bench.asked
    assert node == {
        "id": "w.pay",
        "tool": "charge",
        "args": {"order": "o-1", "amount": 5},
        "timeout_s": 9.0,
        "compensate_with": {"tool": "refund", "args": {"charge_number": {"$ref": "w.pay#/number"}}},
    }


@pytest.mark.parametrize(
    ("settled", "kind"),
    [
        ({"outcome": "failed", "sure": True, "reason": "no such card"}, ToolFailed),
        ({"outcome": "failed", "sure": False, "reason": "nobody knows"}, OutcomeUnknown),
        ({"outcome": "rejected", "sure": True, "rejected_by": "policy"}, ToolFailed),
    ],
)
def test_code_is_told_what_is_known_of_a_call_that_failed(settled: dict[str, Any], kind: type[Exception]) -> None:
    @workflow(tools=TOOLS)
    async def handle(ctx: WorkflowContext) -> str:
        try:
            await ctx.call(note, text="x")
        except ToolFailed as no:
            return f"no effect: {no.reason} {no.rejected_by}"
        except OutcomeUnknown as what:
            return f"unknown: {what.reason}"
        return "done"

    bench = ran(handle, lambda node: CallSettled(node_id=node["id"], **settled))
    assert isinstance(bench.last, Returned)
    assert bench.last.result.startswith("no effect" if kind is ToolFailed else "unknown: nobody knows")


def test_to_pay_again_after_an_unknown_outcome_is_not_what_except_tool_failed_does() -> None:
    @workflow(tools=TOOLS)
    async def handle(ctx: WorkflowContext) -> None:
        try:
            await ctx.call(charge, order="o-1")
        except ToolFailed:
            await ctx.call(charge, order="o-1")

    bench = ran(handle, lambda node: CallSettled(node_id=node["id"], outcome="failed", sure=False))
    assert len(bench.asked) == 1
    assert isinstance(bench.last, BodyRaised)
    assert bench.last.error_class == "OutcomeUnknown"


def test_a_stopped_body_calls_nothing_also_not_while_it_tidies_up() -> None:
    seen = list[str]()

    @workflow(tools=TOOLS)
    async def handle(ctx: WorkflowContext) -> None:
        try:
            await ctx.call(note, text="x")
        except Exception:  # noqa: BLE001  what many write
            seen.append("caught")
        finally:
            try:
                await ctx.call(note, text="tidy")
            except WorkflowCancelled:
                seen.append("refused")

    bench = Bench(handle)
    bench.begin()
    bench.stop()
    assert (len(bench.asked), seen) == (1, ["refused"])
    assert bench.last == BodyRaised("body", "WorkflowCancelled", "its job is stopped")


async def _blocks(_: WorkflowContext) -> None:
    await asyncio.get_running_loop().run_in_executor(None, print)


async def _connects(_: WorkflowContext) -> None:
    await asyncio.open_connection("127.0.0.1", 1)


async def _unknown(ctx: WorkflowContext) -> None:
    await ctx.call("no-such-tool")


async def _badly(ctx: WorkflowContext) -> None:
    await ctx.call("charge", order=["not a text"])


async def _refers(ctx: WorkflowContext) -> None:
    await ctx.call("note", text={"$ref": "other#"})


async def _large(ctx: WorkflowContext) -> None:
    await ctx.call(note, text="x" * 70_000)


async def _many(ctx: WorkflowContext) -> None:
    await asyncio.gather(*(ctx.call(note, text=str(n)) for n in range(1_001)))


async def _twice(ctx: WorkflowContext) -> None:
    await asyncio.gather(*(ctx.using(id="one").call(note, text=text) for text in "ab"))


async def _long(ctx: WorkflowContext) -> None:
    await ctx.using(id="x" * 70).call(note, text="a")


@pytest.mark.parametrize(
    "body", [_blocks, _connects, _unknown, _badly, _refers, _large, _many, _twice, _long], ids=lambda one: one.__name__
)
def test_what_can_t_be_asked_for_is_refused_and_not_planned(body: Callable[..., Any]) -> None:
    bench = ran(workflow("handle", tools=TOOLS)(body))
    assert isinstance(bench.last, BodyRaised)
    assert bench.last.error_class == "Misuse"
    assert len(bench.asked) <= 1_000


def test_one_that_waits_for_nothing_that_can_come_ends() -> None:
    @workflow(tools=TOOLS)
    async def handle(_: WorkflowContext) -> None:
        await asyncio.Event().wait()

    bench = ran(handle)
    assert isinstance(bench.last, BodyRaised)
    assert bench.last.error_class == "Deadlock"


async def _raises(_: WorkflowContext) -> None:
    raise ValueError("hunter2 is the password")


async def _exits(_: WorkflowContext) -> None:
    raise SystemExit("hunter2 is the password")


async def _recurses(ctx: WorkflowContext) -> None:
    await _recurses(ctx)


async def _groups(ctx: WorkflowContext) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_raises(ctx))


@pytest.mark.parametrize(
    ("body", "error_class"),
    [(_raises, "ValueError"), (_exits, "SystemExit"), (_recurses, "RecursionError"), (_groups, "ValueError")],
)
def test_of_what_code_raises_only_class_and_line_are_told(body: Callable[..., Any], error_class: str) -> None:
    bench = ran(workflow("handle", tools=TOOLS)(body))
    assert isinstance(bench.last, BodyRaised)
    assert bench.last.error_class == error_class
    assert "test_workflows.py:" in bench.last.text
    assert "hunter2" not in bench.last.text


def test_what_it_fails_with_on_purpose_is_told() -> None:
    @workflow(tools=TOOLS)
    async def handle(_: WorkflowContext) -> None:
        raise Failed("out of stock")

    assert ran(handle).last == BodyRaised("body", "Failed", "out of stock")


def test_times_waits_and_questions_are_calls_and_never_mixed_up() -> None:
    @workflow(tools=TOOLS)
    async def handle(ctx: WorkflowContext, name: str) -> list[Any]:
        asked = ctx.approval("Ship?", fields=[FormField(name="why", type="text", label="Why")], context={"to": name})
        answers = await asyncio.gather(asked, ctx.approval("Refund?"), ctx.sleep(60), asyncio.sleep(61))
        return [
            answers[0],
            await ctx.signal("paid"),
            (await ctx.now()).year,
            await ctx.random(),
            (await ctx.uuid()).hex,
        ]

    def answers(node: dict[str, Any]) -> CallSettled:
        results: dict[str, Any] = {
            "time": {"now": "2030-01-02T03:04:05.000+00:00", "unix_ms": 0},
            "random": {"value": 0.5, "hex": "12345678123446788234567812345678"},
            "human": {"why": "because"},
            "wait": {"paid": 1},
        }
        return CallSettled(node_id=node["id"], outcome="success", result=results.get(node["kind"]))

    bench = ran(handle, answers, name="Ann")
    assert isinstance(bench.last, Returned)
    assert bench.last.result == [{"why": "because"}, {"paid": 1}, 2030, 0.5, "12345678123446788234567812345678"]
    assert len(set(bench.ids)) == len(bench.ids) == 8


def test_a_wait_that_expires_is_a_timeout() -> None:
    @workflow(tools=TOOLS)
    async def handle(ctx: WorkflowContext) -> str:
        try:
            await ctx.signal("paid", within=timedelta(days=7))
        except TimeoutError:
            return "nobody paid"
        return "paid"

    expired: dict[str, Any] = {"outcome": "rejected", "rejected_by": "expired", "reason": "nothing came"}
    bench = ran(handle, lambda node: CallSettled(node_id=node["id"], **expired))
    assert bench.last == Returned("body", "nobody paid")
    assert bench.asked[0]["wait"] == {"key": "paid", "timeout_s": 604_800.0}


def test_code_that_has_changed_is_told_what_is_recorded_of_what_it_asks_for() -> None:
    @workflow(tools=TOOLS)
    async def before(ctx: WorkflowContext) -> None:
        await ctx.call(note, text="a")
        await ctx.call(note, text="b")

    @workflow("before", tools=TOOLS)
    async def after(ctx: WorkflowContext) -> list[str]:
        return [await ctx.call(note, text=one) for one in "cba"]

    old, new = ran(before), Bench(after)
    new.log = list(old.log)
    new.begin()
    assert isinstance(new.last, Idle)
    assert new.ids == [child_id("w", "note", {"text": "c"}, 1)]
    new.go_on(_chance(1))
    assert new.last == Returned("body", ["c", "b", "a"])


def test_timers_that_are_cancelled_take_no_room() -> None:
    @workflow(tools=TOOLS)
    async def handle(ctx: WorkflowContext) -> None:
        for n in range(1_200):
            async with asyncio.timeout(30):
                await ctx.call(note, text=str(n))

    bench = Bench(handle)
    bench.begin()
    while isinstance(bench.last, Idle):
        (call,) = [one for one in bench.last.waits_for if one.startswith("note")]
        bench.settle(CallSettled(node_id=call, outcome="success", result=""))
    assert isinstance(bench.last, Returned)


@pytest.mark.parametrize(
    "declare",
    [
        lambda: workflow(tools=[])(lambda _: None),  # type: ignore[arg-type]
        lambda: workflow("no such/name", tools=[])(_raises),
        lambda: workflow(tools=[])(_without_context),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_workflow_is_refused_where_it_is_declared(declare: Callable[[], Any]) -> None:
    with pytest.raises(DeclarationError):
        declare()


async def _without_context(order: str) -> None:
    pass
