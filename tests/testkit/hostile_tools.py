"""Tools that return, raise and name what no record should hold; `tests.testkit.hostile_tools`, with OUTSIDE_URL."""

import os
from typing import Any

from aetheris.sdk import Failed, Result, StateChange, ToolContext, tool
from aetheris.sdk.toolkits import http


async def _poke(ctx: ToolContext, tag: str) -> None:
    body = {"key": ctx.external_key, "tag": tag}
    await http.call(ctx, "POST", f"{os.environ['OUTSIDE_URL']}/effect", json=body, transport=http.direct())


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"in": value}
    return value


@tool(effect_class="idempotent")
async def deep(ctx: ToolContext, tag: str, levels: int) -> Any:
    """Returns what is nested deeper than a service can read."""
    await _poke(ctx, tag)
    return _nested(levels)


@tool(effect_class="idempotent")
async def named(ctx: ToolContext, tag: str, kind: str) -> Result:
    """Names its effect by what no record can hold."""
    await _poke(ctx, tag)
    name = {"long": "x" * 950_000, "surrogate": "\ud800"}[kind]
    return Result({"tag": tag}, name, [StateChange("row", name, "insert")])


@tool(effect_class="idempotent")
async def fails(ctx: ToolContext, tag: str) -> None:
    """Fails with a text that no record can hold."""
    await _poke(ctx, tag)
    raise Failed("\ud800" * 1_000)


@tool(effect_class="pure")
async def report(size: int) -> dict[str, str]:
    """A large result."""
    return {"text": "x" * size}


@tool(effect_class="idempotent", irreversible=True)
async def publish(ctx: ToolContext, tag: str, text: str) -> Result:
    """Needs an approval."""
    await _poke(ctx, tag)
    return Result(len(text), "ext-1")


@tool(effect_class="idempotent", irreversible=True)
async def weigh(ctx: ToolContext, tag: str, amount: float) -> Result:
    """Needs an approval; returns its argument as it is."""
    await _poke(ctx, tag)
    return Result({"amount": amount, "is_whole": isinstance(amount, int)}, "ext-1")
