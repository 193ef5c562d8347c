"""What the refund agents of every framework call, on the external server; load `tests.testkit.refund_agent_tools`.

An effect's tag is `TOOL ORDER`. An answer is kept back for as long as a file of the tool's name is in the server's
folder. Of an order that begins with UNSURE nobody hears whether it was refunded.
"""

from typing import Any

from aetheris.sdk import Found, NotFound, ProbeContext, Result, ToolContext, Unknown, tool
from aetheris.sdk.toolkits import http
from tests.testkit.external_tools import SETTLES_WITHIN_S, outside_url

UNSURE = "unsure"


@tool("refund", effect_class="probeable", settles_within_s=SETTLES_WITHIN_S, timeout_s=120, on_in_doubt="fail")
async def refund(ctx: ToolContext, order: str, amount: int) -> Result:
    """Pay an order back."""
    made = await _effect(ctx, "refund", order, {"refunded": amount})
    if order.startswith(UNSURE):
        raise ConnectionError
    return made


@refund.probe
async def find_refund(external_key: str, ctx: ProbeContext) -> Found | NotFound | Unknown:
    """Whether the server has it; of an order that begins with UNSURE it doesn't say."""
    made = await _made(ctx, external_key)
    if made is None:
        return NotFound()
    return Unknown("it doesn't say") if UNSURE in made["tag"] else Found({"refunded": 5}, made["id"])


@tool("send_mail", effect_class="probeable", settles_within_s=SETTLES_WITHIN_S, timeout_s=120)
async def send_mail(ctx: ToolContext, order: str, text: str) -> Result:
    """Write to who has ordered."""
    return await _effect(ctx, "send_mail", order, {"sent": text})


@send_mail.probe
async def find_mail(external_key: str, ctx: ProbeContext) -> Found | NotFound:
    """Whether the server has it."""
    made = await _made(ctx, external_key)
    return NotFound() if made is None else Found({"sent": "?"}, made["id"])


async def _effect(ctx: ToolContext, tool_name: str, order: str, result: dict[str, Any]) -> Result:
    body = {"key": ctx.external_key, "tag": tag_of(tool_name, order)}
    url = f"{outside_url()}/effect"
    answer = await http.call(ctx, "POST", url, json=body, params={"hold": tool_name}, transport=http.direct())
    return Result(result, answer.json()["id"])


async def _made(ctx: ProbeContext, external_key: str) -> dict[str, str] | None:
    url = f"{outside_url()}/effects"
    effects = await http.read(ctx, url, params={"key": external_key}, transport=http.direct())
    return effects[0] if effects else None


def tag_of(tool_name: str, order: str) -> str:
    """Under which an effect is counted."""
    return f"{tool_name} {order}"
