"""The tool that the README's agent calls, on the external server; load as `tests.testkit.refund_tools`."""

import os

from aetheris.sdk import Result, ToolContext, tool
from aetheris.sdk.toolkits import http


@tool("refund", effect_class="idempotent", timeout_s=120)
async def refund(ctx: ToolContext, order_id: str, amount: int) -> Result:
    """Refund an order. The answer is kept back for as long as a file `refund` is in the server's folder."""
    body = {"key": ctx.external_key, "tag": f"{order_id} {amount}"}
    url = f"{os.environ['OUTSIDE_URL']}/effect"
    await http.call(ctx, "POST", url, json=body, params={"hold": "refund"}, transport=http.direct())
    return Result({"refunded": amount})
