"""Workflows over the tools of `tests.testkit.external_tools`; load both."""

import asyncio
import os
from typing import Any

from aetheris.sdk import ToolContext, tool
from aetheris.sdk.workflows import ToolFailed, WorkflowContext, undo, workflow
from tests.testkit.external_tools import (
    patient_idempotent,
    poke_idempotent,
    poke_irreversible,
    poke_probeable,
    poke_pure,
    poke_refused,
)


@tool("large", effect_class="pure")
async def large(size: int) -> str:
    """Text of so many bytes."""
    return "x" * size


TOOLS = (poke_idempotent, poke_probeable, poke_pure, poke_refused, poke_irreversible, patient_idempotent)


@workflow(name="chain", tools=TOOLS)
async def chain(ctx: WorkflowContext, tag: str, steps: int, delay_s: float = 0) -> int:
    """So many effects, one behind the other, each under a tag of its own; now and then it reads."""
    for number in range(steps):
        poke = poke_probeable if number % 2 else poke_idempotent
        await ctx.call(poke, tag=f"{tag}-{number}", delay_s=delay_s)
        if number % 10 == 5:
            await ctx.call(poke_pure, tag=f"{tag}-{number}")
    return steps


@workflow(name="steady", tools=TOOLS)
async def steady(ctx: WorkflowContext, tag: str, steps: int, delay_s: float = 0) -> int:
    """As chain, of effects that may be sent again under their keys by whoever takes over."""
    for number in range(steps):
        await ctx.call(poke_idempotent, tag=f"{tag}-{number}", delay_s=delay_s)
    return steps


@workflow(name="wide", tools=TOOLS)
async def wide(ctx: WorkflowContext, tag: str, calls: int) -> int:
    """So many effects at once, three of them equal, and one behind whichever comes first."""
    tasks = [asyncio.ensure_future(ctx.call(poke_probeable, tag=f"{tag}-{number}")) for number in range(calls)]
    tasks += [asyncio.ensure_future(ctx.call(poke_probeable, tag=f"{tag}-same")) for _ in range(3)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    first = next(place for place, task in enumerate(tasks) if task.done())
    await ctx.call(poke_idempotent, tag=f"{tag}-behind-{first}")
    await asyncio.gather(*tasks)
    return first


@workflow(name="declined", tools=TOOLS)
async def declined(ctx: WorkflowContext, tag: str) -> str:
    """A call fails, and the code goes another way."""
    try:
        await ctx.call(poke_refused)
    except ToolFailed:
        await ctx.call(poke_probeable, tag=tag)
        return "declined"
    return "done"


@workflow(name="asks", tools=TOOLS)
async def asks(ctx: WorkflowContext, tag: str) -> str:
    """An effect that a person must allow, between two that nobody need."""
    await ctx.call(poke_idempotent, tag=f"{tag}-before")
    await ctx.call(poke_irreversible, tag=tag)
    await ctx.call(poke_idempotent, tag=f"{tag}-after")
    return "done"


@workflow(name="waits", tools=TOOLS)
async def waits(ctx: WorkflowContext, tag: str) -> Any:
    """A signal, some time, and what follows."""
    said = await ctx.signal("go")
    await ctx.sleep(1.0)
    await ctx.call(poke_idempotent, tag=tag)
    return said


@workflow(name="sleeps", tools=TOOLS)
async def sleeps(ctx: WorkflowContext, tag: str) -> str:
    """It reads, waits for a signal that comes some day, or not, and then it has an effect."""
    await ctx.call(poke_pure, tag=tag)
    await ctx.signal("go", within=86_400)
    await ctx.call(poke_idempotent, tag=tag)
    return "woken"


@workflow(name="carries", tools=(*TOOLS, large))
async def carries(ctx: WorkflowContext, tag: str, size: int) -> str:
    """What it was told, which is large, on the other side of an effect; and it returns all of it."""
    text = await ctx.call(large, size=size)
    await ctx.call(patient_idempotent, tag=tag, hold=tag)
    return text


@tool("keep_text", effect_class="idempotent")
async def keep_text(ctx: ToolContext, tag: str, text: str) -> int:
    """An effect that says how much text it was given."""
    await poke_idempotent.function(ctx, tag=f"{tag}-{len(text)}")
    return len(text)


@workflow(name="hands_on", tools=(*TOOLS, large, keep_text))
async def hands_on(ctx: WorkflowContext, tag: str, size: int) -> int:
    """What is large goes to an effect on the other side of another one, and its code has never read it."""
    text = await ctx.reference(large, size=size)
    await ctx.call(patient_idempotent, tag=f"{tag}-held", hold=tag)
    return await ctx.call(keep_text, tag=tag, text=text.result)


@workflow(name="undone", tools=TOOLS)
async def undone(ctx: WorkflowContext, tag: str) -> None:
    """Two effects, each with what undoes it, and a signal that never comes."""
    for name in ("a", "b"):
        undoing = undo(poke_idempotent, tag=f"{tag}-undo-{name}")
        await ctx.using(undo=undoing).call(poke_idempotent, tag=f"{tag}-{name}")
    await ctx.signal("never")


@workflow(name="dies", tools=TOOLS)
async def dies(ctx: WorkflowContext, tag: str) -> None:
    """Its process dies, always at the same place."""
    await ctx.call(poke_idempotent, tag=tag)
    os._exit(3)


@workflow(name="records", tools=TOOLS)
async def records(ctx: WorkflowContext, tag: str) -> list[Any]:
    """Two functions of its own, and an effect behind each: one that acts at once, one that reads for a while."""
    acted = await ctx.record("pid", os.getpid, reads_only=False)
    await ctx.call(poke_idempotent, tag=f"{tag}-acted")
    read = await ctx.record("slow", _reads_slowly, tag, reads_only=True)
    await ctx.call(poke_idempotent, tag=f"{tag}-read")
    return [acted, read]


async def _reads_slowly(tag: str) -> str:
    await asyncio.sleep(1.5)
    return f"read {tag}"


def flow_node(node: str, flow: str, **args: Any) -> dict[str, Any]:
    """A node of a plan."""
    return {"id": node, "kind": "workflow", "tool": flow, "args": args}
