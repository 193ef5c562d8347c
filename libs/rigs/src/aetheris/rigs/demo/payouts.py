"""The approval demo's one tool; load as `aetheris.rigs.demo.payouts` (docs/demo.md).

Environment: DEMO_BANK_URL, a server that makes every payout it is asked for, and drops no repeat.
"""

import os
from typing import Annotated, Any

from pydantic import Field

from aetheris.rigs.demo.paid import tag_of
from aetheris.rigs.demo.settings import SETTLES_WITHIN_S
from aetheris.sdk import Found, NotFound, ProbeContext, Result, StateChange, ToolContext, tool
from aetheris.sdk.toolkits import http


@tool(effect_class="probeable", irreversible=True, settles_within_s=SETTLES_WITHIN_S)
async def payout(ctx: ToolContext, to: str, amount: Annotated[int, Field(ge=1, le=100_000)]) -> Result:
    """Pay an amount, in units, to somebody."""
    body = {"key": ctx.external_key, "tag": tag_of(to, amount)}
    made = (await http.call(ctx, "POST", f"{_bank()}/effect", json=body, transport=http.direct())).json()
    change = StateChange("payout", made["id"], "create", external_ref=ctx.external_key)
    return Result({"paid": amount, "to": to}, made["id"], [change])


@payout.probe
async def find_payout(external_key: str, ctx: ProbeContext) -> Found | NotFound:
    """Look through the bank's payouts for the key."""
    made: list[Any] = await http.read(ctx, f"{_bank()}/effects", params={"key": external_key}, transport=http.direct())
    evidence = (f"bank: {len(made)} payout(s) with the key",)
    if not made:
        return NotFound(evidence)
    to, _, amount = made[0]["tag"].rpartition(" ")
    return Found({"paid": int(amount), "to": to}, made[0]["id"], evidence)


def _bank() -> str:
    return os.environ["DEMO_BANK_URL"]
