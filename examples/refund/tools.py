"""A payment provider that remembers references: a file for each payment."""

import json
from pathlib import Path
from typing import Any

from aetheris.sdk import Found, NotFound, Result, ToolContext, tool

PAYMENTS = Path(__file__).parent.parent / "outside" / "payments"


@tool(effect_class="pure")
def look_up(order: str) -> dict[str, Any]:
    """What was paid for an order."""
    return {"order": order, "paid": 42}


@tool(effect_class="probeable", irreversible=True, settles_within_s=0)
def refund(ctx: ToolContext, order: str, amount: int) -> Result:
    """Pay an order back."""
    PAYMENTS.mkdir(parents=True, exist_ok=True)
    payment = _payment(ctx.external_key)
    payment.write_text(json.dumps({"order": order, "amount": amount}))
    return Result({"refunded": amount}, external_id=payment.name)


@refund.probe
def find_refund(external_key: str) -> Found | NotFound:
    """Whether the provider has it."""
    payment = _payment(external_key)
    if not payment.exists():
        return NotFound()
    return Found({"refunded": json.loads(payment.read_text())["amount"]}, external_id=payment.name)


def _payment(external_key: str) -> Path:
    return PAYMENTS / external_key.replace(":", "_")
