"""Workflows of a seed: a script, drawn, which one workflow's code runs, and the edits of that code."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from aetheris.protocol.messages.event_values import CodeVersion
from aetheris.sdk.workflows.call_arguments import own, undo
from aetheris.sdk.workflows.declaration import AnyWorkflow, Workflow
from aetheris.sdk.workflows.errors import OutcomeUnknown, ToolFailed
from aetheris.sdk.workflows.workflow_context import ToolCaller, WorkflowContext
from aetheris.testkit.simulation.tape import Tape

Step = Mapping[str, Any]

FLOW = "flow"
PAID = "paid"
"""The signal that workflows wait for."""

MOST_STEPS = 6
AS_IT_WAS = "as it was"
"""The code that was there first."""


def draw_script(tape: Tape, tools: Sequence[str], mark: str) -> list[Step]:
    """What a workflow does, in turn; `mark` tells its calls apart from those of others, but for a few."""
    return [_step(tape, tools, f"{mark}{place}") for place in range(2 + tape.below(MOST_STEPS - 1))]


def _step(tape: Tape, tools: Sequence[str], mark: str) -> Step:
    kind = tape.pick(("call", "call", "both", "race", "read", "call", "sleep", "signal", "form", "late", "hand on"))
    catches = tape.chance(0.7)
    if kind in ("both", "race"):
        return {"do": kind, "calls": [_call(tape, tools, f"{mark}{place}") for place in range(2 + tape.below(2))]}
    if kind in ("call", "late", "hand on"):
        return {"do": kind, "calls": [_call(tape, tools, mark)], "catches": catches}
    return {"do": kind, "within": tape.pick((None, 20.0)), "catches": catches}


def _call(tape: Tape, tools: Sequence[str], mark: str) -> Step:
    call: dict[str, Any] = {"tool": tape.pick(tools), "for": "x" if tape.chance(0.2) else mark}
    if tape.chance(0.2):
        call["id"] = mark
    if tape.chance(0.3):
        call["undo"] = tape.pick(tools)
    return call


async def _run(ctx: WorkflowContext, script: Sequence[Step]) -> list[Any]:
    """Each step, and what came of it; what may have taken effect is let be, what surely has not may be caught."""
    said: list[Any] = []
    for step in script:
        try:
            said.append(await _DO[step["do"]](ctx, step))
        except OutcomeUnknown:
            said.append("unknown")
        except TimeoutError:
            said.append("late")
        except ToolFailed:
            if not step.get("catches"):
                raise
            said.append(await _one(ctx, {"tool": "put", "for": f"instead of {step['do']} {len(said)}"}))
    return said


async def _one(ctx: WorkflowContext, call: Step) -> Any:
    return await _caller(ctx, call).call(call["tool"], **{"for": call["for"]})


def _caller(ctx: WorkflowContext, call: Step) -> ToolCaller:
    return ctx.using(id=call.get("id"), undo=undo(call["undo"], undo=own("/v")) if "undo" in call else None)


async def _call_it(ctx: WorkflowContext, step: Step) -> Any:
    return await _one(ctx, step["calls"][0])


async def _both(ctx: WorkflowContext, step: Step) -> Any:
    found = await asyncio.gather(*(_one(ctx, call) for call in step["calls"]), return_exceptions=True)
    return [type(one).__name__ if isinstance(one, BaseException) else one for one in found]


async def _race(ctx: WorkflowContext, step: Step) -> Any:
    """What follows depends on who is first."""
    tasks = [asyncio.ensure_future(_one(ctx, call)) for call in step["calls"]]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    first = next(place for place, task in enumerate(tasks) if task.done())
    then = await _one(ctx, {"tool": "put", "for": f"behind {step['calls'][first]['for']}"})
    await asyncio.wait(tasks)
    return [first, then]


async def _read(ctx: WorkflowContext, _: Step) -> Any:
    """What follows depends on what is read, and that is another thing each time."""
    found = await ctx.call("read", **{"for": "chance"})
    return await _one(ctx, {"tool": "put", "for": f"of {found['v'] % 2}"})


async def _hand_on(ctx: WorkflowContext, step: Step) -> Any:
    """What comes of a call goes to others, which undo themselves by it, and is read by nobody on the way."""
    (call,) = step["calls"]
    found = await _caller(ctx, call).reference(call["tool"], **{"for": call["for"]})
    undone = undo("put", was=found.result, undo=own("/v"))
    return await ctx.using(undo=undone).call(
        "put", **{"for": call["for"], "whole": found.result, "part": found.at("/v")}
    )


async def _sleep(ctx: WorkflowContext, step: Step) -> None:
    await ctx.sleep(step["within"] or 2.0)


async def _signal(ctx: WorkflowContext, step: Step) -> Any:
    return await ctx.signal(PAID, within=step["within"])


async def _form(ctx: WorkflowContext, step: Step) -> Any:
    return await ctx.approval("Which way?", within=step["within"])


async def _late(ctx: WorkflowContext, step: Step) -> Any:
    """It waits for a while; the call goes on without it."""
    async with asyncio.timeout(3):
        return await _one(ctx, step["calls"][0])


_DO: Mapping[str, Callable[[WorkflowContext, Step], Any]] = {
    "call": _call_it,
    "both": _both,
    "race": _race,
    "read": _read,
    "sleep": _sleep,
    "signal": _signal,
    "form": _form,
    "late": _late,
    "hand on": _hand_on,
}


def _same(script: list[Step], _: str) -> list[Step]:
    return script


def _put(mark: str) -> Step:
    return {"do": "call", "calls": [{"tool": "put", "for": mark}], "catches": True}


def _changed(script: list[Step], mark: str) -> list[Step]:
    found = next((place for place, step in enumerate(script) if "calls" in step), None)
    if found is None:
        return script
    step = script[found]
    calls = [{**step["calls"][0], "for": mark}, *step["calls"][1:]]
    return [*script[:found], {**step, "calls": calls}, *script[found + 1 :]]


EDITS: Mapping[str, Callable[[list[Step], str], list[Step]]] = {
    AS_IT_WAS: _same,
    "goes on": lambda script, _: [*script, _put("more")],
    "reordered": lambda script, _: [*script[1:2], *script[:1], *script[2:]],
    "does something before": lambda script, _: [_put("before"), *script],
    "leaves something out": lambda script, _: script[1:],
    "calls otherwise": lambda script, _: _changed(script, "otherwise"),
    "reads before": lambda script, _: [{"do": "call", "calls": [{"tool": "read", "for": "before"}]}, *script],
    "draws on its own": lambda script, body: _changed(script, f"chance {body}"),
}
"""By what has changed: from the script and the body's name, what that code does."""


def _edited(edit: str, tools: Sequence[str]) -> AnyWorkflow:
    async def flow(ctx: WorkflowContext, script: list[dict[str, Any]]) -> list[Any]:
        return await _run(ctx, EDITS[edit](list(script), ctx.run.start.body))

    return Workflow(flow, name=FLOW, version="1", tools=tools)


def flows(tools: Sequence[str]) -> Mapping[str, AnyWorkflow]:
    """The code of each edit."""
    return {edit: _edited(edit, tools) for edit in EDITS}


def code(edit: str) -> CodeVersion:
    """As executors record it."""
    return CodeVersion(ref="flows:flow", version="1", hash=sha256(edit.encode()).hexdigest())
