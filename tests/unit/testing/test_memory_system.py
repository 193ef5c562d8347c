"""`aetheris.testing` keeps the promises of the system that it stands for: once, probed, parked, approved, undone."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from aetheris.sdk import Failed, Found, NotExecuted, NotFound, Result, ToolContext, tool
from aetheris.sdk.client import Goal
from aetheris.testing import (
    FaultNotMet,
    MemorySystem,
    NotAllowed,
    NotAsked,
    PlanRefused,
    crash_after,
    crash_before,
    duplicate_delivery,
    lost_answer,
    probe_context,
    tool_context,
)

PAID: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_paid() -> Iterator[None]:
    PAID.clear()
    yield
    PAID.clear()


@tool(effect_class="probeable", irreversible=True, settles_within_s=3600)
async def pay(ctx: ToolContext, amount: int) -> Result:
    """Pay, at a provider that remembers references and drops nothing."""
    PAID.append(ctx.external_key)
    return Result({"paid": amount}, external_id=f"p-{len(PAID)}")


@pay.probe
async def paid(external_key: str) -> Found | NotFound:
    return Found({"paid": 5}, "p-1") if external_key in PAID else NotFound()


@tool(effect_class="opaque", irreversible=False)
def post(ctx: ToolContext, text: str) -> dict[str, Any]:
    """Send a letter: nobody can ask whether it went."""
    PAID.append(ctx.external_key)
    return {"text": text}


@tool(effect_class="idempotent")
async def put(ctx: ToolContext, name: str) -> dict[str, Any]:
    if ctx.external_key not in PAID:
        PAID.append(ctx.external_key)
    return {"name": name}


@tool(effect_class="pure")
async def read(name: str) -> dict[str, Any]:
    return {"name": name}


ALLOWED = '[[rules]]\nname = "all"\ntools = ["*"]\neffect = "allow"'


def plan(tool_name: str, node: str = "n", **more: Any) -> dict[str, Any]:
    args = {"pay": {"amount": 5}, "post": {"text": "hello"}, "put": {"name": "x"}, "read": {"name": "x"}}
    return {"nodes": [{"id": node, "kind": "tool", "tool": tool_name, "args": args[tool_name], **more}]}


@pytest.mark.parametrize("fault", [crash_before, crash_after, lost_answer])
@pytest.mark.parametrize("name", ["pay", "put"])
def test_whatever_strikes_a_call_it_takes_effect_once(fault: Any, name: str) -> None:
    job = MemorySystem(pay, put, policy=ALLOWED).run(plan(name), faults=[fault(name)])
    assert (job.status, len(PAID)) == ("completed", 1)


def test_a_probe_finds_the_effect_of_who_was_killed_and_nothing_is_called_again() -> None:
    job = MemorySystem(pay, policy=ALLOWED).run(plan("pay"), faults=[crash_after(pay)])
    assert (job.calls(pay), job.result("n"), job.step("n").via) == (1, {"paid": 5}, "probe")
    assert "worker_ended" in job.events


def test_an_idempotent_tool_is_called_again_with_the_same_key() -> None:
    job = MemorySystem(put).run(plan("put"), faults=[crash_after("put", times=2)])
    assert (job.status, job.calls(put), len(set(PAID))) == ("completed", 3, 1)


@pytest.mark.parametrize("fault", [crash_before, crash_after, lost_answer])
def test_where_nobody_can_know_the_job_waits_for_a_human(fault: Any) -> None:
    system = MemorySystem(post)
    job = system.run(plan("post"), faults=[fault(post)])
    assert (job.status, job.parked, job.calls(post)) == ("waiting", ("n",), 0 if fault is crash_before else 1)
    system.resolve(job, "n", "happened", result={"text": "hello"})
    assert (job.status, job.result("n"), job.parked) == ("completed", {"text": "hello"}, ())


def test_on_his_word_it_is_called_again() -> None:
    system = MemorySystem(post)
    job = system.run(plan("post"), faults=[crash_before(post)])
    system.resolve(job, "n", "retry")
    assert (job.status, job.calls(post)) == ("completed", 1)


def test_whoever_gets_everything_twice_does_it_once() -> None:
    job = MemorySystem(pay, put, post, policy=ALLOWED).run(
        {"nodes": [*plan("pay", "a")["nodes"], *plan("post", "b", depends_on=["a"])["nodes"]]},
        faults=[duplicate_delivery()],
    )
    assert (job.status, job.calls(pay), job.calls(post), len(PAID)) == ("completed", 1, 1, 2)


def test_an_irreversible_call_waits_for_an_approval_and_not_for_the_submitter_s() -> None:
    system = MemorySystem(pay)
    job = system.run(plan("pay"))
    assert (job.status, job.asked, job.calls(pay)) == ("waiting", ("n",), 0)
    with pytest.raises(NotAllowed):
        system.approve(job, by="submitter")
    system.approve(job)
    assert (job.status, job.calls(pay), job.asked) == ("completed", 1, ())
    with pytest.raises(NotAsked):
        system.approve(job)


def test_a_no_is_a_no_and_an_edit_asks_anew() -> None:
    system = MemorySystem(pay)
    refused = system.reject(system.run(plan("pay")))
    assert (refused.status, refused.calls(pay)) == ("failed", 0)
    job = system.edit(system.run(plan("pay")), data={"amount": 6}, by="carol")
    assert job.asked == ("n",)
    assert system.approve(job).result("n") == {"paid": 6}


def test_a_policy_decides_and_its_requests_expire_with_the_time() -> None:
    rules = '[[rules]]\nname = "ask"\ntools = ["put"]\neffect = "approval"\nexpires_s = 60\n' + ALLOWED
    system = MemorySystem(put, read, policy=rules)
    assert system.run(plan("read")).status == "completed"
    job = system.run(plan("put"))
    assert job.status == "waiting"
    system.pass_time(61)
    assert (job.status, job.calls(put)) == ("failed", 0)


def test_what_refuses_is_tried_again_as_the_plan_says_and_what_fails_is_undone() -> None:
    count: list[int] = []

    @tool(effect_class="idempotent")
    async def flaky() -> None:
        count.append(1)
        if len(count) < 3:
            raise NotExecuted("busy")
        raise Failed("no")

    system = MemorySystem(put, flaky)
    undo = {"tool": "put", "args": {"name": "undone"}}
    nodes = [
        *plan("put", "a", compensate_with=undo)["nodes"],
        {"id": "b", "kind": "tool", "tool": "flaky", "depends_on": ["a"], "retry": {"max_attempts": 5, "backoff_s": 9}},
    ]
    job = system.run({"nodes": nodes})
    assert (job.status, len(count), job.view.compensated, job.calls(put)) == ("failed", 3, ("a",), 2)


def test_timers_pass_and_signals_are_waited_for() -> None:
    nodes = [
        {"id": "later", "kind": "timer", "wait": {"for_s": 3600}},
        {"id": "told", "kind": "wait", "wait": {"key": "go"}, "depends_on": ["later"]},
    ]
    system = MemorySystem(read)
    job = system.run({"nodes": nodes})
    assert (job.status, job.step("later").state) == ("waiting", "completed")
    system.signal(job, "go", {"by": "train"})
    assert (job.status, job.result("told")) == ("completed", {"by": "train"})


def test_a_run_goes_on_with_what_its_predecessor_returned_though_it_is_killed_between() -> None:
    second = plan("put", "b")["nodes"][0] | {"args": {"name": {"$ref": "a#/name"}}}
    job = MemorySystem(put).run({"nodes": [*plan("put", "a")["nodes"], second]}, faults=[crash_after("put")])
    assert (job.status, job.result("b")) == ("completed", {"name": "x"})


def test_a_goal_is_planned_by_the_scripted_model() -> None:
    script = {"Look it up": [{"calls": [{"tool": "read", "args": {"name": "x"}}]}, {"text": "found"}]}
    job = MemorySystem(read, model=script).run(Goal(goal="Look it up", tools=["read"]))
    assert (job.status, job.calls(read)) == ("completed", 1)


def test_a_plan_that_the_gateway_would_refuse_is_refused() -> None:
    with pytest.raises(PlanRefused, match=r"plan\.nodes\[0\]"):
        MemorySystem(read).run(plan("put"))


def test_a_fault_that_never_strikes_is_an_error() -> None:
    with pytest.raises(FaultNotMet, match="pay"):
        MemorySystem(pay, put).run(plan("put"), faults=[crash_after(pay)])


async def test_it_runs_beside_a_test_s_own_loop() -> None:
    assert (await asyncio.to_thread(MemorySystem(read).run, plan("read"))).status == "completed"


async def test_a_tool_is_called_by_itself_with_a_context() -> None:
    result = await pay(tool_context(node_id="n"), 5)
    assert result.external_id == "p-1"
    assert isinstance(await paid(probe_context(node_id="n").external_key), Found)
    assert isinstance(await paid(probe_context(node_id="m").external_key), NotFound)
    assert tool_context(within_s=5).remaining() <= 5


LARGE = "x" * 70_000


@tool(effect_class="probeable", settles_within_s=3600)
async def draw(ctx: ToolContext, amount: int) -> Result:  # noqa: ARG001  a schema of its own
    """Return more than a record holds."""
    PAID.append(ctx.external_key)
    return Result({"drawn": LARGE}, external_id="d-1")


@draw.probe
async def drawn(external_key: str) -> Found | NotFound:
    return Found({"drawn": LARGE}, "d-1") if external_key in PAID else NotFound()


@tool(effect_class="pure")
async def measure(text: str) -> dict[str, Any]:
    return {"length": len(text)}


def drawing(name: str) -> dict[str, Any]:
    args = {"amount": 5} if name == "draw" else {"text": "hello"}
    nodes = [
        {"id": "a", "tool": name, "args": args},
        {"id": "b", "tool": "measure", "args": {"text": {"$ref": "a#/drawn"}}},
        {"id": "c", "tool": "measure", "args": {"text": {"$ref": "a#/drawn"}}, "depends_on": ["b"]},
    ]
    return {"nodes": nodes}


@pytest.mark.parametrize("faults", [(), (crash_after("draw"),), (lost_answer("draw"),), (crash_before("draw"),)])
def test_a_result_that_no_record_holds_is_given_to_who_refers_to_it(faults: tuple[Any, ...]) -> None:
    job = MemorySystem(draw, measure, policy=ALLOWED).run(drawing("draw"), faults=faults)
    assert (job.status, len(PAID)) == ("completed", 1)
    assert job.result("a") == {"drawn": LARGE}
    assert job.result("b") == job.result("c") == {"length": len(LARGE)}


def test_so_is_one_that_a_person_says() -> None:
    system = MemorySystem(post, measure, policy=ALLOWED)
    job = system.run(drawing("post"), faults=[crash_after("post")])
    assert job.parked == ("a",)
    job = system.resolve(job, "a", "happened", result={"drawn": LARGE})
    assert (job.status, job.result("c")) == ("completed", {"length": len(LARGE)})
