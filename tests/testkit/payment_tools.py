"""A payment that asks first; load as `tests.testkit.payment_tools`. It pays nobody."""

from aetheris.sdk import Result, ToolContext, tool


@tool("payout", effect_class="opaque", irreversible=True)
async def payout(ctx: ToolContext, to: str, amount: float, note: str = "") -> Result:
    """Can't be taken back."""
    return Result({"to": to, "amount": amount, "note": note}, external_id=ctx.external_key)


@tool("lost_payout", effect_class="opaque", irreversible=False)
async def lost_payout(to: str) -> None:
    """Nobody knows whether it took effect."""
    raise ConnectionError(to)
