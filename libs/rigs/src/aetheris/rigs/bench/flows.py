"""The workflow of the bench; load as `aetheris.rigs.bench.flows`."""

from aetheris.rigs.bench.tools import note
from aetheris.sdk.workflows import WorkflowContext, workflow


@workflow(tools=[note])
async def notes(ctx: WorkflowContext, steps: int) -> None:
    """Call the tool so often, each time when the call before has returned."""
    for _ in range(steps):
        await ctx.call(note)
