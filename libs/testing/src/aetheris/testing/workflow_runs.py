"""A workflow on the services' own rules, in memory: its body may die anywhere, and must do the same all the same."""

import copy
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from aetheris.protocol.messages import events as ev
from aetheris.sdk.tools import AnyTool
from aetheris.sdk.workflows.declaration import NODE, AnyWorkflow, Workflow, plan_of
from aetheris.testing.faults import InjectedFault
from aetheris.testing.job_under_test import JobUnderTest
from aetheris.testing.memory_system import MemorySystem

_MOST_WORDS = 5
_DIVERGED = "diverged"


class BodyDiffers(AssertionError):
    """Another run of the same code does something else; the message says behind which death, and what."""


def run_workflow(
    workflow: AnyWorkflow,
    args: Mapping[str, Any],
    *,
    tools: Sequence[AnyTool] = (),
    workflows: Sequence[AnyWorkflow] = (),
    fakes: Mapping[AnyTool, Callable[..., Any]] | None = None,
    signals: Mapping[str, Any] | None = None,
    answers: Sequence[Mapping[str, Any] | None] = (),
    policy: Path | str | None = None,
    faults: Sequence[InjectedFault] = (),
    crash: Literal["everywhere"] | None = None,
    races: bool = False,
    strict: bool = False,
) -> JobUnderTest:
    """Run a workflow until it has ended, or nothing is left to say to it; its result is `job.result(NODE)`.

    Args:
        tools: those that it, or a workflow that it starts, names by their names alone.
        workflows: those that are named so; all others that it starts are there.
        fakes: what is called in the place of a tool's own function.
        signals: by their keys; they are there from the beginning.
        answers: what people say when they are asked, one after another: the fields of a form, or None: no.
        policy: a policy file, or its TOML; without one irreversible calls need approval.
        faults: what goes wrong, in each run.
        crash: everywhere: run it once more for each moment of its life, in which the process of its body dies; and
            calls end in another order in each.
        races: it may do other things where calls end in another order; then only that it goes on is looked at.
        strict: a clock, chance, files, network or threads of its own end it, with the line named, as
            `@workflow(strict=True)` has it anywhere; so it is of those that it starts.

    Raises:
        FaultNotMet: a run ended, and a fault never struck.
        BodyDiffers: a run in which the body died differs from that in which it did not.
    """
    started = [_strict(one) if strict else one for one in _reached((workflow, *workflows))]
    called = list({id(one): one for flow in started for one in flow.tools.values() if one is not None}.values())
    called += tools
    faked = [_faked(one, (fakes or {}).get(one)) for one in called]

    def run(chance: random.Random | None, dies: int | None) -> tuple[MemorySystem, JobUnderTest]:
        system = MemorySystem(*started, *faked, policy=policy)
        if chance is not None:
            system.shuffle(chance)
        system.lose_bodies(dies)
        job = system.run(plan_of(workflow.name, args), faults=faults, signals=signals or {}, answers=answers)
        return system, job

    system, job = run(None, None)
    for moment in range(1, system.moments) if crash is not None else ():
        again, other = run(_chance(moment), moment)
        names = [one.name for one in called]
        found = _differences(job, other, tools=names, races=races) or _others(system, again, job, names, races=races)
        if found:
            at = f"its body died at moment {moment} of {system.moments}"
            raise BodyDiffers(f"{workflow.name}: {at}: {'; '.join(found[:_MOST_WORDS])}")
    return job


def _strict(workflow: AnyWorkflow) -> AnyWorkflow:
    same = copy.copy(workflow)
    same.strict = True
    return same


def _reached(given: Sequence[AnyWorkflow]) -> list[AnyWorkflow]:
    """These workflows, and all that they start, as far as that is at hand."""
    found = list(dict.fromkeys(given))
    for one in found:
        found += [flow for flow in one.starts.values() if isinstance(flow, Workflow) and flow not in found]
    return found


def _others(
    clean: MemorySystem, again: MemorySystem, job: JobUnderTest, tools: Sequence[str], *, races: bool
) -> list[str]:
    """The same of the jobs that it has begun; which those are follows from its calls."""
    before, now = ({one.job_id: one for one in system.jobs} for system in (clean, again))
    found = [] if races else [f"job {one} is not begun" for one in before if one not in now]
    found += [] if races else [f"job {one} is begun as well" for one in now if one not in before]
    for job_id in before.keys() & now.keys() - {job.job_id}:
        found += _differences(before[job_id], now[job_id], tools=tools, races=races)
    return found


def _chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311  a repeatable order


def _faked(tool: AnyTool, fake: Callable[..., Any] | None) -> AnyTool:
    if fake is None:
        return tool
    faked = copy.copy(tool)
    faked.function = fake
    return faked


def _differences(clean: JobUnderTest, other: JobUnderTest, *, tools: Sequence[str], races: bool) -> list[str]:
    found = [*_diverged(other)]
    if other.status != clean.status:
        found.append(f"it is {other.status}, not {clean.status} ({other.why or 'nothing says why'})")
    if races:
        return found
    ids, others = _children(clean), _children(other)
    found += [f"{one} is not called" for one in ids if one not in others]
    found += [f"{one} is called as well" for one in others if one not in ids]
    for tool in tools:
        times, now = clean.calls(tool), other.calls(tool)
        if times != now:
            found.append(f"{tool} is called {now} times, not {times}")
    if not found and clean.status == "completed" and clean.result(NODE) != other.result(NODE):
        found.append("it returns something else")
    return found


def _diverged(job: JobUnderTest) -> list[str]:
    """What a body that was stopped asked for, and what it did not ask for."""
    found: list[str] = []
    for event in job.log:
        if isinstance(event, ev.InvocationInDoubt) and event.error_class == _DIVERGED:
            for said in event.evidence or ():
                unasked, held = (", ".join(said.get(name, ())) or "nothing" for name in ("unasked", "held"))
                changed = said.get("changed")
                found.append(
                    f"{changed} was asked for with other arguments"
                    if changed is not None
                    else f"it asked for {held}, and not for {unasked}, which is recorded"
                )
    return found


def _children(job: JobUnderTest) -> Counter[str]:
    return Counter(node_id for node_id, entries in job.state.entries.items() if entries[-1].call is not None)
