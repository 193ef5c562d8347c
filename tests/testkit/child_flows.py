"""Workflows that begin others as jobs of their own, over the tools of `tests.testkit.external_tools`; load both."""

import asyncio

from aetheris.sdk.workflows import ChildFailed, WorkflowContext, undo, workflow
from tests.testkit.external_tools import patient_idempotent, poke_idempotent, poke_probeable, poke_refused


@workflow(name="step", tools=[poke_idempotent, patient_idempotent, poke_refused])
async def step(ctx: WorkflowContext, tag: str, hold: str = "", fails: bool = False) -> str:
    """One effect; it waits while it is held, or fails behind it."""
    pay = ctx.using(undo=undo(poke_idempotent, tag=f"{tag}-undo"))
    await pay.call(poke_idempotent, tag=tag)
    if hold:
        await ctx.call(patient_idempotent, tag=f"{tag}-held", hold=hold)
    if fails:
        await ctx.call(poke_refused)
    return f"did {tag}"


@workflow(name="several", tools=[poke_probeable], starts=[step])
async def several(ctx: WorkflowContext, tag: str, children: int, hold: str = "") -> list[str]:
    """So many children at once, and an effect behind them."""
    done = await asyncio.gather(*[ctx.child(step, tag=f"{tag}-{number}", hold=hold) for number in range(children)])
    await ctx.call(poke_probeable, tag=f"{tag}-behind")
    return done


@workflow(name="catches", tools=[poke_idempotent], starts=[step])
async def catches(ctx: WorkflowContext, tag: str) -> str:
    """A child fails, and the code goes another way."""
    try:
        return await ctx.child(step, tag=tag, fails=True)
    except ChildFailed as failed:
        await ctx.call(poke_idempotent, tag=f"{tag}-caught")
        return failed.status


@workflow(name="leaves", tools=[], starts=[step])
async def leaves(ctx: WorkflowContext, tag: str) -> str:
    """A job that goes on by itself."""
    return await ctx.using(id="left").start(step, tag=tag)


@workflow(name="rounds", tools=[poke_idempotent])
async def rounds(ctx: WorkflowContext, tag: str, left: int) -> str:
    """One effect a job, and the next job behind it."""
    await ctx.call(poke_idempotent, tag=f"{tag}-{left}")
    if left:
        await ctx.continue_as(rounds, tag=tag, left=left - 1)
    return f"{tag} is over"


@workflow(name="awaits_rounds", tools=[], starts=[rounds])
async def awaits_rounds(ctx: WorkflowContext, tag: str, left: int) -> str:
    """What the last of several jobs returns, each of which went on as the next."""
    return await ctx.child(rounds, tag=tag, left=left)
