"""What the services' cores write of honest jobs breaks no rule of what a call is, and a lie in it does."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from aetheris.proofs import RawRecord
from aetheris.sdk import Found, NotFound, Result, ToolContext, tool
from aetheris.sdk.client import Goal
from aetheris.testing import MemorySystem, crash_after, crash_before
from aetheris.testing.job_under_test import JobUnderTest
from tests.testkit import standalone

LONG = "漢" * 10_000
"""As long as an answer may be: three of them are more than a form shows."""


@tool(effect_class="opaque", irreversible=True)
async def post(text: str, note: str = "", more: str = "", amount: float = 0.0) -> Result:
    """Send a letter."""
    return Result({"letters": [text, note, more], "amount": amount}, external_id="l-1")


def raw(job: JobUnderTest) -> list[RawRecord]:
    """Its records, as they lie in its log."""
    records = (entry.record for entry in job._entries)
    return [RawRecord(record.offset, record.key, record.headers, record.value) for record in records]


def broken(records: Sequence[RawRecord]) -> list[str]:
    """The rules that both verifiers find broken."""
    return [one.rule for one in standalone.verified(records).violations]


def asked() -> tuple[MemorySystem, JobUnderTest]:
    """A letter that waits for a yes."""
    system = MemorySystem(post)
    return system, system.run({"nodes": [{"id": "n", "kind": "tool", "tool": "post", "args": {"text": "hello"}}]})


def test_an_edit_may_make_a_call_too_large_to_be_shown() -> None:
    system, job = asked()
    system.edit(job, data={"text": LONG, "note": LONG, "more": LONG}, by="editor")
    assert broken(raw(job)) == []
    system.approve(job)
    assert (job.status, broken(raw(job))) == ("completed", [])


def test_so_may_the_last_of_several_and_it_is_asked_about_again_when_it_is_tried_again() -> None:
    system = MemorySystem(post)
    plan = {"nodes": [{"id": "n", "kind": "tool", "tool": "post", "args": {"text": "hello"}}]}
    job = system.run(plan, faults=[crash_before(post)])
    for data in ({"text": LONG}, {"note": LONG, "amount": 2.0}, {"amount": 1e20, "more": LONG}):
        system.edit(job, data=data, by="editor")
    system.approve(job)
    system.resolve(job, "n", "retry")
    assert (job.asked, broken(raw(job))) == (("n",), [])
    system.approve(job)
    assert (job.status, job.events.count("approval_requested"), broken(raw(job))) == ("completed", 5, [])


def shows_the_call_before_it(records: list[dict[str, Any]]) -> None:
    first, last = requests(records)
    last["form"]["context"]["arguments"] = first["form"]["context"]["arguments"]


def shows_another_beginning(records: list[dict[str, Any]]) -> None:
    requests(records)[-1]["form"]["context"]["arguments"]["text"]["begins"] = "something harmless"


def leaves_an_argument_out(records: list[dict[str, Any]]) -> None:
    del requests(records)[-1]["form"]["context"]["arguments"]["note"]


def names_another_hash(records: list[dict[str, Any]]) -> None:
    first, last = requests(records)
    last["args_hash"] = first["args_hash"]


def requests(bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [body for body in bodies if "form" in body]


@pytest.mark.parametrize(
    "lie", [shows_the_call_before_it, shows_another_beginning, leaves_an_argument_out, names_another_hash]
)
def test_what_is_shown_of_a_large_edited_call_is_held_against_the_edit(
    lie: Callable[[list[dict[str, Any]]], None],
) -> None:
    system, job = asked()
    system.edit(job, data={"text": LONG, "note": LONG, "more": LONG}, by="editor")
    records = raw(job)
    bodies = [json.loads(record.value) for record in records]
    lie(bodies)
    lied = [replace(one, value=json.dumps(body).encode()) for one, body in zip(records, bodies, strict=True)]
    assert broken(lied) == ["form_differs"]


def test_an_edit_behind_a_request_makes_nothing_of_it() -> None:
    system, job = asked()
    system.edit(job, data={"text": LONG, "note": LONG, "more": LONG}, by="editor")
    records = raw(job)
    records.append(records.pop(job.events.index("approval_decided")))
    records = [replace(record, offset=at) for at, record in enumerate(records)]
    assert "form_differs" in broken(records)


@tool(effect_class="pure")
async def read() -> Any:
    """What is large, deep, or hardly anything."""
    deep: Any = 1
    for _ in range(60):
        deep = [deep]
    wide = {f"k{number:02}": "w" * 3_000 for number in reversed(range(40))}
    return {"deep": deep, "wide": wide, "numbers": [1.0, -0.0, 1e21, 1e-7, 2**53 - 1], "a/b~ c": None, "none": {}}


@tool(effect_class="pure")
async def take(value: Any = None) -> Any:
    """What was given."""
    return value


@tool(effect_class="opaque", irreversible=True)
async def send(value: Any = None, other: Any = None) -> Result:
    """What was given, for good."""
    return Result([value, other], external_id="s-1")


PAID: set[str] = set()


@tool(effect_class="probeable", irreversible=True, settles_within_s=60)
async def pay(ctx: ToolContext, amount: float) -> Result:
    """Pay, at a provider that remembers references."""
    PAID.add(ctx.external_key)
    return Result(amount, external_id="p-1")


@pay.probe
async def paid(external_key: str) -> Found | NotFound:
    return Found({"paid": 1.0, "text": LONG}, "p-1") if external_key in PAID else NotFound()


def node(name: str, of: str, args: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"id": name, "kind": "tool", "tool": of, **({} if args is None else {"args": args}), **more}


def ref(target: str) -> dict[str, str]:
    return {"$ref": target}


def answered(system: MemorySystem, job: JobUnderTest, *refused: str) -> JobUnderTest:
    """With a yes to whatever is asked, and a no to these."""
    while job.asked:
        name = job.asked[0]
        _ = system.reject(job, name) if name in refused else system.approve(job, name)
    return job


def results_in_arguments() -> JobUnderTest:
    system = MemorySystem(read, take, send)
    nodes = [
        node("r", "read"),
        node("deep", "send", {"value": ref("r#/deep"), "other": 1.0}),
        node("large", "send", {"value": ref("r#/wide"), "other": [ref("r"), ref("r#/numbers/2")]}),
        node("again", "send", {"value": ref("r#/wide"), "other": [ref("r"), ref("r#/numbers/2")]}, occurrence=2),
        node("none", "take", {}),
        node("of", "take", {"value": [ref("none"), ref("r#/a~1b~0 c"), ref("large#/1/1"), ref("r#/none")]}),
    ]
    return answered(system, system.run({"nodes": nodes}))


def waits_and_a_form() -> JobUnderTest:
    system = MemorySystem(post, send)
    fields = [{"name": "amount", "type": "number", "label": "a"}, {"name": "text", "type": "text", "label": "t"}]
    nodes = [
        {"id": "later", "kind": "timer", "wait": {"for_s": 60}},
        {"id": "told", "kind": "wait", "wait": {"key": "go"}},
        {"id": "ask", "kind": "human", "form": {"title": "How much?", "fields": fields}},
        node("s", "send", {"value": ref("told#/x/1"), "other": [ref("later"), ref("told")]}),
        node("p", "post", {"text": ref("ask#/text"), "amount": ref("ask#/amount")}),
        node("of", "send", {"value": ref("p")}),
    ]
    job = system.run({"nodes": nodes})
    system.signal(job, "go", {"x": [0, 2.0], "large": {f"k{number}": "y" * 2_000 for number in range(40)}})
    system.approve(job, "ask", data={"amount": 2.0, "text": "hi"})
    system.edit(job, "p", data={"text": LONG, "note": LONG, "more": LONG, "amount": 3.0}, by="editor")
    return answered(system, job)


def what_is_undone() -> JobUnderTest:
    system = MemorySystem(read, send)
    undo = {"tool": "send", "args": {"value": ref("s"), "other": ref("r#/wide")}}
    first = node("s", "send", {"value": ref("r#/numbers")}, depends_on=["r"], compensate_with=undo)
    job = system.run({"nodes": [node("r", "read"), first, node("z", "send", {"value": 0}, depends_on=["s"])]})
    return answered(system, job, "z")


def a_goal() -> JobUnderTest:
    calls = [{"tool": "take", "args": {"value": 1.0}}, {"tool": "read", "args": {}}]
    last = [{"tool": "post", "args": {"text": "hey", "amount": 1}}]
    system = MemorySystem(read, take, post, model={"Go": [{"calls": calls}, {"calls": last}, {"text": "done"}]})
    job = system.run(Goal(goal="Go", tools=["*"]))
    system.edit(job, data={"text": LONG, "note": LONG, "more": LONG}, by="editor")
    return answered(system, job)


def what_a_probe_found() -> JobUnderTest:
    PAID.clear()
    system = MemorySystem(pay, take)
    nodes = [node("p", "pay", {"amount": 2.0}), node("of", "take", {"value": ref("p")})]
    job = system.run({"nodes": nodes}, faults=[crash_after(pay)])
    return answered(system, job)


@pytest.mark.parametrize(
    ("course", "status"),
    [
        (results_in_arguments, "completed"),
        (waits_and_a_form, "completed"),
        (what_is_undone, "failed"),
        (a_goal, "completed"),
        (what_a_probe_found, "completed"),
    ],
)
def test_an_honest_job_breaks_no_rule(course: Callable[[], JobUnderTest], status: str) -> None:
    job = course()
    assert (job.status, broken(raw(job))) == (status, [])
