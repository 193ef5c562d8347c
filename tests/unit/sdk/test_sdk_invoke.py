"""What came of a call: every way a tool can end, and what is known of its effect then (docs/guarantees.md)."""

import asyncio
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from aetheris.protocol.base.canonical import canonical
from aetheris.sdk import (
    Confirmed,
    Failed,
    Found,
    NotExecuted,
    NotFound,
    Partial,
    ProbeContext,
    Result,
    StateChange,
    Tool,
    ToolContext,
    Unknown,
    tool,
)
from aetheris.sdk.invoke import ask_probe, invoke, verify
from aetheris.sdk.outcomes import InDoubt, Outcome, Permanent, Retryable, Succeeded
from aetheris.sdk.redaction import Redactor

PAYLOAD = "hunter2"


def context(deadline: float = math.inf) -> ToolContext:
    return ToolContext("aetheris:j:n:0", 0, "ab" * 32, "j", "n", deadline)


def asking() -> ProbeContext:
    return ProbeContext("aetheris:j:n:0", "ab" * 32, "j", "n")


def returning(value: Any) -> Callable[[], Any]:
    return lambda: value


def raising(error: BaseException) -> Callable[[], Any]:
    def act() -> None:
        raise error

    return act


async def both_ways(act: Callable[[], Any], effect_class: Any = "opaque", **declared: Any) -> Outcome:
    """The outcome of `act` as a sync and as an async tool, which must be the same."""

    @tool("sync", effect_class=effect_class, **(dict[str, Any]({"irreversible": False}) | declared))
    def in_thread() -> Any:
        return act()

    @tool("async", effect_class=effect_class, **(dict[str, Any]({"irreversible": False}) | declared))
    async def in_loop() -> Any:
        return act()

    first, second = await invoke(in_thread, {}, context()), await invoke(in_loop, {}, context())
    assert first == second
    return first


async def test_a_plain_result() -> None:
    assert await both_ways(returning({"n": 1})) == Succeeded({"n": 1})


async def test_a_result_with_what_changed() -> None:
    change = StateChange("refund", "re_1", "create", etag='"1"')
    outcome = await both_ways(returning(Result({"n": 1}, "re_1", [change])))
    assert outcome == Succeeded({"n": 1}, "re_1", (change,))
    assert change.payload() == {
        "resource_type": "refund",
        "resource_id": "re_1",
        "operation": "create",
        "etag": '"1"',
    }


async def test_a_partial_result_stands() -> None:
    assert await both_ways(returning(Partial(Result([1], "x")))) == Succeeded([1], "x", partial=True)
    assert await both_ways(returning(Partial([1]))) == Succeeded([1], partial=True)


async def test_only_two_exceptions_say_that_nothing_happened() -> None:
    assert await both_ways(raising(NotExecuted("HTTP 429"))) == Retryable("HTTP 429")
    assert await both_ways(raising(Failed("no such order"))) == Permanent("no such order")


@pytest.mark.parametrize(
    "error",
    [
        ValueError(PAYLOAD),
        TimeoutError(PAYLOAD),
        ConnectionResetError(PAYLOAD),
        asyncio.CancelledError(PAYLOAD),
        SystemExit(PAYLOAD),
        StopIteration(PAYLOAD),
        ExceptionGroup(PAYLOAD, [NotExecuted(PAYLOAD)]),
    ],
)
async def test_any_other_leaves_the_call_in_doubt_and_tells_only_its_class(error: BaseException) -> None:
    @tool(effect_class="opaque", irreversible=False)
    def act() -> None:
        raise error

    outcome = await invoke(act, {}, context())
    assert isinstance(outcome, InDoubt)
    assert outcome.error_class == type(error).__name__


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(1), RuntimeError()])
async def test_so_it_does_in_the_event_loop(error: BaseException) -> None:
    @tool(effect_class="opaque", irreversible=False)
    async def act() -> None:
        raise error

    outcome = await invoke(act, {}, context())
    assert isinstance(outcome, InDoubt)
    assert outcome.error_class == type(error).__name__


async def test_a_pure_tool_may_always_be_asked_again() -> None:
    assert await both_ways(raising(KeyError(PAYLOAD)), "pure") == Retryable("KeyError")
    assert await both_ways(raising(Failed("no such order")), "pure") == Permanent("no such order")


async def test_the_authors_message_is_cut() -> None:
    outcome = await both_ways(raising(Failed("x" * 600)))
    assert outcome == Permanent("x" * 500)


@pytest.mark.parametrize(
    ("effect_class", "expected"), [("opaque", InDoubt("TimeoutError")), ("pure", Retryable("TimeoutError"))]
)
async def test_a_timeout_is_no_outcome(effect_class: Any, expected: Outcome) -> None:
    release = threading.Event()

    @tool("sync", effect_class=effect_class, irreversible=False, timeout_s=0.05)
    def hangs() -> None:
        release.wait(30)

    @tool("async", effect_class=effect_class, irreversible=False, timeout_s=0.05)
    async def sleeps() -> None:
        await asyncio.Event().wait()

    try:
        assert await invoke(hangs, {}, context()) == expected
        assert await invoke(sleeps, {}, context()) == expected
    finally:
        release.set()


async def test_a_tool_that_will_not_be_cancelled_holds_nobody_up() -> None:
    release, cancelled = asyncio.Event(), asyncio.Event()

    @tool(timeout_s=0.05, effect_class="opaque", irreversible=False)
    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                cancelled.set()

    assert await asyncio.wait_for(invoke(stubborn, {}, context()), 10) == InDoubt("TimeoutError")
    await asyncio.wait_for(cancelled.wait(), 10)
    release.set()


async def test_a_passed_deadline_sends_nothing() -> None:
    called: list[int] = []

    @tool(effect_class="opaque", irreversible=False)
    def act() -> None:
        called.append(1)

    outcome = await invoke(act, {}, context(deadline=time.monotonic() - 1))
    assert outcome == Retryable("the deadline passed before the call")
    assert not called


async def test_the_deadline_cuts_the_timeout() -> None:
    @tool(timeout_s=60, effect_class="opaque", irreversible=False)
    async def sleeps() -> None:
        await asyncio.Event().wait()

    outcome = await invoke(sleeps, {}, context(deadline=time.monotonic() + 0.05))
    assert outcome == InDoubt("TimeoutError")


async def test_who_cancels_the_caller_cancels_the_call() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    @tool(effect_class="opaque", irreversible=False)
    async def sleeps() -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    caller = asyncio.create_task(invoke(sleeps, {}, context()))
    await started.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await asyncio.wait_for(ended.wait(), 10)


async def test_a_tool_is_a_task_of_its_own() -> None:
    @tool(effect_class="opaque", irreversible=False)
    async def act() -> str:
        async with asyncio.timeout(10):
            await asyncio.sleep(0)
        me = asyncio.current_task()
        assert me is not None
        return me.get_name()

    outcome = await invoke(act, {}, context())
    here = asyncio.current_task()
    assert isinstance(outcome, Succeeded)
    assert here is not None
    assert outcome.result != here.get_name()


async def test_bad_arguments_fail_for_good_and_nothing_is_called() -> None:
    @tool(effect_class="opaque", irreversible=False)
    def act(amount: int) -> None:
        raise AssertionError(amount)

    outcome = await invoke(act, {"amount": PAYLOAD}, context())
    assert outcome == Permanent("invalid_args: /amount: int_parsing")


async def test_the_context_is_injected_and_no_argument() -> None:
    @tool(effect_class="opaque", irreversible=False)
    def act(ctx: ToolContext, x: int = 2) -> str:
        return f"{ctx.external_key} {x}"

    assert await invoke(act, {}, context()) == Succeeded("aetheris:j:n:0 2")
    assert isinstance(await invoke(act, {"ctx": 1}, context()), Permanent)


async def test_a_hundred_hanging_tools_leave_room_for_one_more() -> None:
    release = threading.Event()

    @tool(timeout_s=30, effect_class="opaque", irreversible=False)
    def hangs() -> None:
        release.wait(30)

    waiting = [asyncio.create_task(invoke(hangs, {}, context())) for _ in range(100)]
    try:
        assert await both_ways(returning(1)) == Succeeded(1)
    finally:
        release.set()
        await asyncio.gather(*waiting)


@dataclass
class Point:
    x: int


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError(PAYLOAD)


@pytest.mark.parametrize("value", [math.nan, 2**60, "\ud800", {"a": object()}, Odd(), {1: Odd()}])
async def test_a_result_is_never_an_error(value: Any) -> None:
    outcome = await both_ways(returning(value))
    assert isinstance(outcome, Succeeded)


async def test_a_circular_result_is_never_an_error() -> None:
    circular: list[Any] = []
    circular.append(circular)
    assert isinstance(await both_ways(returning(circular)), Succeeded)


@pytest.mark.parametrize("value", [{"b": 1.5, "a": "é"}, math.nan, {"s": "hunter2hunter2"}, [], None])
async def test_the_bytes_that_go_with_a_result_are_its_own(value: Any) -> None:
    @tool(effect_class="opaque", irreversible=False)
    def act() -> Any:
        return value

    outcome = await invoke(act, {}, context(), Redactor({"s@1": "hunter2hunter2"}))
    assert isinstance(outcome, Succeeded)
    data = canonical(outcome.result)
    assert outcome.canonical == data
    assert b"hunter2" not in data


async def test_dataclasses_and_tuples_become_json() -> None:
    assert await both_ways(returning({"at": Point(1), "seen": (1, 2)})) == Succeeded({"at": {"x": 1}, "seen": [1, 2]})


def probeable(asks: Callable[..., Any]) -> Tool[..., None]:
    @tool("act", effect_class="probeable", probe=asks)
    def act() -> None: ...

    return act


async def test_a_probe_answers_in_either_style() -> None:
    async def found(external_key: str, ctx: ProbeContext) -> Found:
        return Found({"key": external_key, "job": ctx.job_id}, "x-1", ("seen",))

    def not_found(external_key: str) -> NotFound:
        return NotFound((external_key,))

    answer = await ask_probe(probeable(found), asking(), 5)
    assert answer == Found({"key": "aetheris:j:n:0", "job": "j"}, "x-1", ("seen",))
    assert await ask_probe(probeable(not_found), asking(), 5) == NotFound(("aetheris:j:n:0",))


async def test_a_probe_that_fails_knows_nothing() -> None:
    def broken(external_key: str) -> NotFound:
        raise RuntimeError(PAYLOAD + external_key)

    async def hanging(external_key: str) -> NotFound:
        await asyncio.Event().wait()
        return NotFound((external_key,))

    def silent(external_key: str) -> None:
        """Forgets to answer."""

    assert await ask_probe(probeable(broken), asking(), 5) == Unknown("RuntimeError")
    assert await ask_probe(probeable(hanging), asking(), 0.05) == Unknown("TimeoutError")
    assert await ask_probe(probeable(silent), asking(), 5) == Unknown("a NoneType is no answer")


async def test_a_verifier_compares() -> None:
    @tool(effect_class="opaque", irreversible=False)
    def act() -> None: ...

    @act.verifier
    def same(change: StateChange) -> Confirmed:
        return Confirmed((change.resource_id,))

    change = StateChange("refund", "re_1", "create")
    assert same(change) == await verify(act, change, asking(), 5)
