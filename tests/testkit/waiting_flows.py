"""Workflows that wait for others, are refused, and are undone, over the tools of `tests.testkit.external_tools`."""

from aetheris.sdk.workflows import ToolFailed, WorkflowContext, undo, workflow
from tests.testkit.external_tools import poke_idempotent, poke_irreversible, poke_probeable, poke_refused


@workflow(name="decided", tools=(poke_idempotent, poke_irreversible))
async def decided(ctx: WorkflowContext, tag: str) -> str:
    """Waits for a signal, for a while, and for a human, in turn; a no is none of its failures."""
    said = await ctx.signal("go")
    await ctx.sleep(0.2)
    try:
        await ctx.call(poke_irreversible, tag=f"{tag}-{said}")
    except ToolFailed as no:
        await ctx.call(poke_idempotent, tag=f"{tag}-not")
        return f"{no.rejected_by or no.reason}"
    return "sent"


@workflow(name="undone", tools=(poke_idempotent, poke_probeable, poke_refused))
async def undone(ctx: WorkflowContext, tag: str, fails: bool) -> None:
    """Two effects that can be undone, then it fails, or waits for what never comes."""
    for number in range(2):
        undoing = ctx.using(undo=undo(poke_idempotent, tag=f"{tag}-undo-{number}"))
        await undoing.call(poke_probeable, tag=f"{tag}-{number}")
    if fails:
        await ctx.call(poke_refused)
    await ctx.signal("never")


@workflow(name="equal", tools=(poke_idempotent,))
async def equal(ctx: WorkflowContext, tag: str) -> int:
    """Effects, one behind the other, until it is held or stopped."""
    for number in range(6):
        await ctx.call(poke_idempotent, tag=f"{tag}-{number}", delay_s=0.2)
    return 6
