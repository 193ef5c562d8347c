"""Opaque tools whose effect happens and whose end nobody hears of; load as `tests.lossy_tools`, with OUTSIDE_URL."""

import os

from aetheris.sdk import Result, ToolContext, tool
from aetheris.sdk.toolkits import http


@tool("lose")
async def lose(ctx: ToolContext, tag: str) -> Result:
    """Says nothing of what should become of it."""
    return await _lose(ctx, tag)


@tool("lose_and_fail", on_in_doubt="fail")
async def lose_and_fail(ctx: ToolContext, tag: str) -> Result:
    """Fails rather than wait for a human."""
    return await _lose(ctx, tag)


async def _lose(ctx: ToolContext, tag: str) -> Result:
    body = {"key": ctx.external_key, "tag": tag}
    await http.call(ctx, "POST", f"{os.environ['OUTSIDE_URL']}/effect", json=body, transport=http.direct())
    raise RuntimeError
