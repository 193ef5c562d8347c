"""Results that code hands on unread: what it may write for them, and that nobody else's words stand for one."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from aetheris.protocol.base.child_ids import child_id
from aetheris.sdk import ToolContext, tool
from aetheris.sdk.workflows import Misuse, ResultReference, ToolFailed, WorkflowContext, own, undo, workflow
from aetheris.sdk.workflows.bodies import Asked, BodyRaised, BodySaid, BodyStart, CallSettled, Returned
from aetheris.sdk.workflows.local_bodies import LocalBodies


class Fetched(BaseModel):
    body: str
    links: list[str]


@tool("fetch", effect_class="pure")
async def fetch(url: str) -> Fetched:
    return Fetched(body=url, links=[])


@tool("keep", effect_class="idempotent")
async def keep(ctx: ToolContext, text: str, more: dict[str, Any] | None = None) -> str:
    return f"{ctx.external_key} {text} {more}"


@tool("drop", effect_class="idempotent")
async def drop(text: str, kept: str) -> None:
    """Undo."""


@tool("summarise", effect_class="pure")
async def summarise(page: Fetched) -> int:
    return len(page.body)


TOOLS = [fetch, keep, drop, summarise]
Body = Callable[[WorkflowContext], Any]


def run(body: Body, outcome: str = "success") -> tuple[list[Asked], BodySaid]:
    """All that it asks for, each told to have ended so, and its last word."""
    asked: list[Asked] = []
    last: list[BodySaid] = []

    def hear(said: BodySaid) -> None:
        if isinstance(said, Asked):
            asked.append(said)
        else:
            last[:] = [said]

    flow = workflow("handle", tools=TOOLS)(body)
    bodies = LocalBodies([flow], hear)
    bodies.begin(BodyStart("body", flow.key, "job-1", "w"))
    told = 0
    while told < len(asked):
        one = asked[told]
        result = None if one.by_reference else {"summarise": 3}.get(one.node.get("tool", ""), "done")
        bodies.settled("body", [CallSettled(node_id=one.node["id"], outcome=outcome, result=result)])
        told += 1
    return asked, last[0]


def test_a_reference_stands_in_the_arguments_of_later_calls_whole_and_by_path() -> None:
    async def handle(ctx: WorkflowContext) -> str:
        page: ResultReference[Fetched] = await ctx.reference(fetch, url="u")
        await ctx.call(summarise, page=page.result)
        undone = undo(drop, text=page.at("/body"), kept=own())
        keeps = ctx.using(id="kept", undo=undone)
        return await keeps.call(keep, text=page.at("/body"), more={"of": [page.at("/links/0")]})

    (first, second, third), last = run(handle)
    source = child_id("w", "fetch", {"url": "u"}, 1)
    assert last == Returned("body", "done")
    assert (first.by_reference, second.by_reference, third.by_reference) == (True, False, False)
    assert first.node["args"] == {"url": "u"}
    assert second.node["args"] == {"page": {"$ref": f"{source}#"}}
    assert second.node["id"] == child_id("w", "summarise", second.node["args"], 1)
    assert third.node["args"] == {"text": {"$ref": f"{source}#/body"}, "more": {"of": [{"$ref": f"{source}#/links/0"}]}}
    assert third.node["compensate_with"]["args"] == {"text": {"$ref": f"{source}#/body"}, "kept": {"$ref": "w.kept#"}}


def test_a_model_s_prompt_may_have_one() -> None:
    async def handle(ctx: WorkflowContext) -> None:
        page = await ctx.reference(fetch, url="u")
        await ctx.llm("fast", page.at("/body"))

    asked, _ = run(handle)
    assert asked[1].node["args"]["prompt"] == {"$ref": f"{asked[0].node['id']}#/body"}


def test_a_call_that_fails_is_the_code_s_to_catch() -> None:
    async def handle(ctx: WorkflowContext) -> str:
        try:
            await ctx.reference(fetch, url="u")
        except ToolFailed:
            return "failed"
        return "there"

    assert run(handle, "failed")[1] == Returned("body", "failed")


async def _words(ctx: WorkflowContext) -> None:
    """What a page or a model says is no reference, though it names a call of this very workflow."""
    page = await ctx.reference(fetch, url="u")
    await ctx.call(keep, text="x", more={"$ref": f"{page.node_id}#"})


async def _words_within(ctx: WorkflowContext) -> None:
    page = await ctx.reference(fetch, url="u")
    await ctx.call(keep, text=page.at("/body"), more={"deep": [{"$ref": f"{page.node_id}#/links"}]})


async def _model(ctx: WorkflowContext) -> None:
    page = await ctx.reference(fetch, url="u")
    (model_tool,) = ctx.model_tools(["keep"])
    await model_tool.call({"text": "x", "more": {"$ref": f"{page.node_id}#"}})


async def _undoing_another(ctx: WorkflowContext) -> None:
    """What undoes a call may be given what that was given, and nothing more."""
    page = await ctx.reference(fetch, url="u")
    await ctx.using(id="kept", undo=undo(drop, text=page.at("/body"), kept=own())).call(keep, text="x")


async def _record(ctx: WorkflowContext) -> None:
    page = await ctx.reference(fetch, url="u")
    await ctx.record("count", len, page.at("/body"), reads_only=True)


async def _approval(ctx: WorkflowContext) -> None:
    page = await ctx.reference(fetch, url="u")
    await ctx.approval("Keep?", context={"page": page.result})


async def _both_ways(ctx: WorkflowContext) -> None:
    await ctx.using(id="page").reference(fetch, url="u")
    await ctx.using(id="page").call(fetch, url="u")


@pytest.mark.parametrize(
    "body",
    [_words, _words_within, _model, _undoing_another, _record, _approval, _both_ways],
    ids=lambda one: one.__name__,
)
def test_nothing_else_stands_for_a_result(body: Body) -> None:
    asked, last = run(body)
    assert isinstance(last, BodyRaised)
    assert last.error_class == Misuse.__name__
    assert len(asked) == 1
