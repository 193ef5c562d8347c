"""Tools of the four effect classes that call the chaos run's outside server; load as `aetheris.rigs.chaos.tools`.

Environment: OUTSIDE_URL. Each call but `look`'s is one effect with its tag and the external key. The server
deduplicates nothing: `keyed` only says so, and its repeats are counted by key.
"""

import asyncio
import os
from typing import Any

from aetheris.protocol.plan.graph import EffectClass
from aetheris.sdk import Failed, Found, NotFound, ProbeContext, Result, StateChange, ToolContext, Unknown, tool
from aetheris.sdk.toolkits import http

TIMEOUT_S = 4.0
"""Short: after Redis has lost data, this long goes by before a missing lease is doubted."""

SETTLES_WITHIN_S = TIMEOUT_S
"""Longer than a request is ever kept on the wire (schedule.LATEST_S)."""

TOOLS = {
    EffectClass.PURE: "look",
    EffectClass.IDEMPOTENT: "keyed",
    EffectClass.PROBEABLE: "asked",
    EffectClass.OPAQUE: "blind",
}
REFUSES = "refuse"


POLICY = """
[[rules]]
name = "asked-for"
tools = ["asked"]
when = "has(args.ask) && args.ask"
effect = "approval"

[[rules]]
name = "rest"
tools = ["*"]
effect = "allow"
"""


@tool("look", effect_class="pure", timeout_s=TIMEOUT_S)
async def look(ctx: ToolContext, tag: str, delay_s: float = 0, pad: int = 0) -> dict[str, Any]:
    """Reads; has no effect."""
    await http.read(ctx, f"{_url()}/read", params={"tag": tag}, transport=http.direct())
    await asyncio.sleep(delay_s)
    return {"tag": tag, "pad": "x" * pad}


@tool("keyed", effect_class="idempotent", timeout_s=TIMEOUT_S)
async def keyed(ctx: ToolContext, tag: str, delay_s: float = 0, pad: int = 0) -> Result:
    """A second call may only carry the same key."""
    return await _effect(ctx, tag, delay_s, pad)


@tool("asked", effect_class="probeable", timeout_s=TIMEOUT_S, settles_within_s=SETTLES_WITHIN_S)
async def asked(ctx: ToolContext, tag: str, delay_s: float = 0, pad: int = 0, ask: bool = False) -> Result:  # noqa: ARG001
    """Can be found again by its key; with `ask`, a human is asked before (see POLICY)."""
    return await _effect(ctx, tag, delay_s, pad)


@tool("blind", effect_class="opaque", timeout_s=TIMEOUT_S, irreversible=False)
async def blind(ctx: ToolContext, tag: str, delay_s: float = 0, pad: int = 0) -> Result:
    """Nobody can tell whether it took effect."""
    return await _effect(ctx, tag, delay_s, pad)


@tool(REFUSES, effect_class="idempotent", timeout_s=TIMEOUT_S)
async def refuse(ctx: ToolContext, tag: str) -> dict[str, Any]:  # noqa: ARG001
    """Fails, surely: what its job did before is undone."""
    raise Failed("it always does")


@asked.probe
async def found(external_key: str, ctx: ProbeContext) -> Found | NotFound | Unknown:
    """Whether the external system has an effect of that key."""
    url = f"{_url()}/effects"
    effects = await http.read(ctx, url, params={"key": external_key}, transport=http.direct())
    if not effects:
        return NotFound((f"GET {url}: no effect with the key",))
    return Found({"tag": effects[0]["tag"]}, effects[0]["id"], (f"GET {url}: {len(effects)} effect(s) with the key",))


async def _effect(ctx: ToolContext, tag: str, delay_s: float, pad: int) -> Result:
    body = {"key": ctx.external_key, "tag": tag}
    answer = await http.call(ctx, "POST", f"{_url()}/effect", json=body, transport=http.direct())
    await asyncio.sleep(delay_s)
    effect = answer.json()
    change = StateChange("effect", effect["id"], "create", external_ref=ctx.external_key)
    return Result({"tag": tag, "pad": "x" * pad}, effect["id"], [change])


def _url() -> str:
    return os.environ["OUTSIDE_URL"]
