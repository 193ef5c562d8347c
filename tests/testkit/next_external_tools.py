"""The next version of one of `external_tools`: load `tests.testkit.next_external_tools` beside it, or alone."""

from aetheris.sdk import Result, ToolContext, tool
from tests.testkit import external_tools

SETTLES_WITHIN_S = external_tools.SETTLES_WITHIN_S


@tool("poke_idempotent", effect_class="idempotent", version="2")
async def poke_idempotent(ctx: ToolContext, tag: str, delay_s: float = 0, hold: str = "") -> Result:
    """As before, and of another version."""
    return await external_tools.poke_idempotent(ctx, tag, delay_s, hold)
