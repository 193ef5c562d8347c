"""Tools of every effect class that call the external server; load `tests.testkit.external_tools`, from the root.

Environment: OUTSIDE_URL, the server. Each `poke` makes one effect with its tag and the external key. With `hold`,
the server keeps the answer back after the effect (see
aetheris.rigs.chaos.external_server); `delay_s` waits after the answer.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from aetheris.sdk import (
    Failed,
    Found,
    NotExecuted,
    NotFound,
    Partial,
    ProbeContext,
    Result,
    StateChange,
    ToolContext,
    Unknown,
    tool,
)
from aetheris.sdk.toolkits import http

SETTLES_WITHIN_S = 0.5
"""The server is on this machine, and holds nothing back but where a test tells it to."""

UNSTATED_S = 10.0
"""Long enough for a test to let go what is held back, once it has seen the first answer."""


@tool("poke_pure", effect_class="pure")
async def poke_pure(ctx: ToolContext, tag: str, delay_s: float = 0, hold: str = "") -> dict[str, Any]:
    """Reads; leaves no effect."""
    await http.read(ctx, f"{outside_url()}/read", params={"tag": tag, **_held(hold)}, transport=http.direct())
    await asyncio.sleep(delay_s)
    return {"tag": tag}


@tool("poke_idempotent", effect_class="idempotent")
async def poke_idempotent(ctx: ToolContext, tag: str, delay_s: float = 0, hold: str = "") -> Result:
    """Declared idempotent: a second effect may only carry the same key."""
    return await _poke(ctx, tag, delay_s, hold)


@tool("poke_probeable", effect_class="probeable", settles_within_s=SETTLES_WITHIN_S)
async def poke_probeable(ctx: ToolContext, tag: str, delay_s: float = 0, hold: str = "") -> Result:
    """Can be found again by its key."""
    return await _poke(ctx, tag, delay_s, hold)


@tool("poke_opaque", effect_class="opaque", irreversible=False)
async def poke_opaque(ctx: ToolContext, tag: str, delay_s: float = 0, hold: str = "") -> Result:
    """Nothing is known of it."""
    return await _poke(ctx, tag, delay_s, hold)


@tool("poke_lost", effect_class="opaque", irreversible=False)
async def poke_lost(ctx: ToolContext, tag: str) -> Result:
    """Takes effect, and nobody hears of it."""
    await _poke(ctx, tag, 0, "")
    raise ConnectionError


@tool("lost_irreversible", irreversible=True, effect_class="opaque")
async def lost_irreversible(ctx: ToolContext, tag: str) -> Result:
    """As poke_lost, and cannot be undone."""
    await _poke(ctx, tag, 0, "")
    raise ConnectionError


@tool("poke_refused", effect_class="probeable", settles_within_s=SETTLES_WITHIN_S)
async def poke_refused() -> Result:
    """Never takes effect."""
    raise Failed


@tool("poke_in_part", effect_class="probeable", settles_within_s=SETTLES_WITHIN_S)
async def poke_in_part(ctx: ToolContext, tag: str) -> Partial:
    """Takes effect, but not all that was asked for."""
    return Partial((await _poke(ctx, tag, 0, "")).value)


@tool("poke_second_time", effect_class="probeable", settles_within_s=SETTLES_WITHIN_S)
async def poke_second_time(ctx: ToolContext, tag: str) -> Result:
    """The first try gives up before anything is sent."""
    if ctx.external_key.endswith(":0"):
        raise NotExecuted
    return await _poke(ctx, tag, 0, "")


@tool("poke_irreversible", effect_class="probeable", irreversible=True, settles_within_s=SETTLES_WITHIN_S)
async def poke_irreversible(ctx: ToolContext, tag: str, delay_s: float = 0, hold: str = "") -> Result:
    """Needs approval, unless policy allows it."""
    return await _poke(ctx, tag, delay_s, hold)


@tool(
    "patient_irreversible",
    effect_class="probeable",
    irreversible=True,
    timeout_s=600,
    settles_within_s=SETTLES_WITHIN_S,
)
async def patient_irreversible(ctx: ToolContext, tag: str, hold: str = "") -> Result:
    """As poke_irreversible, for callers that sleep long."""
    return await _poke(ctx, tag, 0, hold)


@tool("once_a_session", effect_class="opaque", irreversible=True, timeout_s=600, duplicate_scope="session")
async def once_a_session(ctx: ToolContext, tag: str, hold: str = "") -> Result:
    """Of which a session has one."""
    return await _poke(ctx, tag, 0, hold)


@tool("patient_idempotent", effect_class="idempotent", timeout_s=600)
async def patient_idempotent(ctx: ToolContext, tag: str, hold: str = "") -> Result:
    """As poke_idempotent, for callers that sleep long."""
    return await _poke(ctx, tag, 0, hold)


@tool("patient_probeable", effect_class="probeable", timeout_s=600, settles_within_s=SETTLES_WITHIN_S)
async def patient_probeable(ctx: ToolContext, tag: str, hold: str = "") -> Result:
    """As poke_probeable, for callers that sleep long."""
    return await _poke(ctx, tag, 0, hold)


@tool("poke_unstated", effect_class="probeable", timeout_s=UNSTATED_S)
async def poke_unstated(ctx: ToolContext, tag: str, hold: str = "") -> Result:
    """Says nothing of how long a request may be under way."""
    return await _poke(ctx, tag, 0, hold)


@tool("poke_reset", effect_class="probeable", settles_within_s=SETTLES_WITHIN_S)
async def poke_reset(ctx: ToolContext, tag: str, once: str) -> Result:
    """Its connection is reset before anything is sent, once: as long as there is such a file."""
    if _taken(Path(once)):
        raise ConnectionResetError
    return await _poke(ctx, tag, 0, "")


@tool("poke_late", effect_class="probeable", timeout_s=600, settles_within_s=SETTLES_WITHIN_S)
async def poke_late(ctx: ToolContext, tag: str, once: str) -> Result:
    """Takes its time before anything is sent, once: as long as there is such a file."""
    if _taken(Path(once)):
        await asyncio.sleep(600)
    return await _poke(ctx, tag, 0, "")


@tool("poke_impatient", effect_class="probeable", settles_within_s=UNSTATED_S)
async def poke_impatient(ctx: ToolContext, tag: str, hold: str = "") -> Result:
    """Gives up by itself while its request is under way."""
    async with asyncio.timeout(0.5):
        return await _poke(ctx, tag, 0, hold)


@tool("compute", effect_class="pure", timeout_s=60)
async def compute(seconds: float) -> None:
    """Holds the event loop up, as one that counts does."""
    time.sleep(seconds)  # noqa: ASYNC251 - that is what it is for


@tool("poke_broken", effect_class="idempotent")
async def poke_broken(ctx: ToolContext, tag: str) -> Result:
    """Takes effect, and never gets an answer."""
    await _poke(ctx, tag, 0, "")
    raise ConnectionResetError


@poke_probeable.probe
@poke_reset.probe
@poke_late.probe
@poke_impatient.probe
@poke_unstated.probe
@poke_refused.probe
@poke_in_part.probe
@poke_second_time.probe
@patient_probeable.probe
@poke_irreversible.probe
@patient_irreversible.probe
async def poked(external_key: str, ctx: ProbeContext) -> Found | NotFound | Unknown:
    """Whether the external system has an effect of that key."""
    url = f"{outside_url()}/effects"
    effects = await http.read(ctx, url, params={"key": external_key}, transport=http.direct())
    if not effects:
        return NotFound((f"GET {url}: 0 effects with the key",))
    first = effects[0]
    return Found(_result(first), first["id"], (f"GET {url}: {len(effects)} effect(s) with the key",))


async def _poke(ctx: ToolContext, tag: str, delay_s: float, hold: str) -> Result:
    body = {"key": ctx.external_key, "tag": tag}
    answer = await http.call(
        ctx, "POST", f"{outside_url()}/effect", json=body, params=_held(hold), transport=http.direct()
    )
    await asyncio.sleep(delay_s)
    effect = answer.json()
    change = StateChange("effect", effect["id"], "create", external_ref=ctx.external_key)
    return Result(_result(effect), effect["id"], [change])


def _taken(file: Path) -> bool:
    there = file.exists()
    file.unlink(missing_ok=True)
    return there


def _result(effect: dict[str, str]) -> dict[str, str]:
    """The id stays out of it: the same call gives the same result in every run."""
    return {"poked": effect["tag"]}


def _held(hold: str) -> dict[str, str]:
    return {"hold": hold} if hold else {}


def outside_url() -> str:
    """The server that counts."""
    return os.environ["OUTSIDE_URL"]
