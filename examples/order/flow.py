"""An order that is paid, and thanked for a while later, whatever dies in between."""

from pathlib import Path

from mail.tools import send_mail

from aetheris.sdk import Failed, ToolContext, tool
from aetheris.sdk.workflows import ToolFailed, WorkflowContext, own, undo, workflow

CHARGES = Path(__file__).parent.parent / "outside" / "charges"


@tool(effect_class="idempotent")
def charge(ctx: ToolContext, order: str, amount: int) -> str:
    """Charge a card; the provider knows a key that it has seen."""
    if amount > 1_000:
        raise Failed("the card is not good for that")
    CHARGES.mkdir(parents=True, exist_ok=True)
    name = ctx.external_key.replace(":", "_")
    (CHARGES / name).write_text(f"{order} {amount}\n")
    return name


@tool(effect_class="idempotent")
def give_back(charge_name: str) -> None:
    """Give back what was charged."""
    (CHARGES / charge_name).write_text("given back\n")


@workflow(tools=[charge, give_back, send_mail])
async def handle_order(ctx: WorkflowContext, order: str, mail: str, amount: int) -> str:
    """Charge, wait a little, thank; or say that it was declined."""
    pay = ctx.using(id="pay", undo=undo(give_back, charge_name=own()))
    try:
        await pay.call(charge, order=order, amount=amount)
    except ToolFailed as no:
        await ctx.call(send_mail, to=mail, text=f"Declined: {no.reason}.")
        return "declined"
    await ctx.sleep(2)
    await ctx.call(send_mail, to=mail, text=f"Thank you for {order}.")
    return "paid"
