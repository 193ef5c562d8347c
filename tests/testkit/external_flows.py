"""Workflows over the tools of `tests.testkit.external_tools`; load both."""

from collections.abc import Mapping
from typing import Any

from aetheris.sdk.workflows import WorkflowContext, workflow
from tests.testkit.external_tools import poke_idempotent, poke_probeable, poke_pure

TOOLS = (poke_idempotent, poke_probeable, poke_pure)


@workflow(name="chain", tools=TOOLS)
async def chain(ctx: WorkflowContext, tag: str, steps: int, delay_s: float = 0) -> int:
    """So many effects, one behind the other, each under a tag of its own; now and then it reads."""
    for number in range(steps):
        poke = poke_probeable if number % 2 else poke_idempotent
        await ctx.call(poke, tag=f"{tag}-{number}", delay_s=delay_s)
        if number % 10 == 5:
            await ctx.call(poke_pure, tag=f"{tag}-{number}")
    return steps


def flow_node(node: str, workflow: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """A node of a plan."""
    return {"id": node, "kind": "workflow", "tool": workflow, "args": dict(args)}
