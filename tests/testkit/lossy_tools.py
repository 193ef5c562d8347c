"""Opaque tools whose effect happens and whose end nobody hears of; `tests.testkit.lossy_tools`, with OUTSIDE_URL."""

import os

from aetheris.sdk import Failed, Result, ToolContext, tool
from aetheris.sdk.toolkits import http


@tool("lose", effect_class="opaque", irreversible=False)
async def lose(ctx: ToolContext, tag: str) -> Result:
    """Says nothing of what should become of it."""
    return await _lose(ctx, tag)


@tool("lose_and_fail", on_in_doubt="fail", effect_class="opaque", irreversible=False)
async def lose_and_fail(ctx: ToolContext, tag: str) -> Result:
    """Fails rather than wait for a human."""
    return await _lose(ctx, tag)


async def _lose(ctx: ToolContext, tag: str) -> Result:
    body = {"key": ctx.external_key, "tag": tag}
    await http.call(ctx, "POST", f"{os.environ['OUTSIDE_URL']}/effect", json=body, transport=http.direct())
    raise RuntimeError


@tool("late", on_in_doubt="fail", timeout_s=0.5, effect_class="opaque", irreversible=False)
async def late(ctx: ToolContext, tag: str) -> Result:
    """Takes effect, and has no answer in time while a file `late` is in the server's folder."""
    body = {"key": ctx.external_key, "tag": tag}
    url = f"{os.environ['OUTSIDE_URL']}/effect"
    await http.call(ctx, "POST", url, json=body, params={"hold": "late"}, transport=http.direct())
    return Result({"done": tag})


@tool("steady", timeout_s=120, effect_class="opaque", irreversible=False)
async def steady(ctx: ToolContext, tag: str) -> Result:
    """Is heard of, once no file `steady` is in the server's folder."""
    body = {"key": ctx.external_key, "tag": tag}
    url = f"{os.environ['OUTSIDE_URL']}/effect"
    await http.call(ctx, "POST", url, json=body, params={"hold": "steady"}, transport=http.direct())
    return Result({"done": tag})


@tool("refuse", effect_class="opaque", irreversible=False)
async def refuse(tag: str) -> Result:
    """Never takes effect."""
    raise Failed(tag)
