"""Tools that answer what the test tells them, and say outside what they were given; as `tests.testkit.saying_tools`."""

import json
from typing import Any

from aetheris.sdk import Result, ToolContext, tool
from aetheris.sdk.toolkits import http
from tests.testkit.external_tools import outside_url


@tool("say", effect_class="idempotent")
async def say(ctx: ToolContext, tag: str, json_text: str, times: int = 1) -> Result:
    """Has its effect under the tag, and answers the JSON; its strings so many times as long."""
    await _effect(ctx, tag)
    return Result(_longer(json.loads(json_text), times))


@tool("repeat", effect_class="idempotent")
async def repeat(ctx: ToolContext, what: Any, before: str = "") -> dict[str, Any]:
    """Has its effect under `before` and the JSON that it was given."""
    text = json.dumps(what, sort_keys=True, separators=(",", ":"))
    await _effect(ctx, f"{before}{len(text)}:{text[:100]}")
    return {"size": len(text)}


async def _effect(ctx: ToolContext, tag: str) -> None:
    body = {"key": ctx.external_key, "tag": tag}
    await http.call(ctx, "POST", f"{outside_url()}/effect", json=body, transport=http.direct())


def _longer(value: Any, times: int) -> Any:
    if isinstance(value, dict):
        return {name: _longer(inner, times) for name, inner in value.items()}
    return value * times if isinstance(value, str) else value
