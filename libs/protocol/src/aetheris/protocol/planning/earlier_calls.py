"""What a model is told of the job that its own continues: its calls, and what came of each (docs/continue.md); pure.

The gateway makes the plan of the new job of it, and the planner makes it again: neither takes the other's
word, nor that of who submitted it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from aetheris.protocol.base.references import HIDDEN, REF, SECRET
from aetheris.protocol.fold.state import JobState, PlanEntry
from aetheris.protocol.messages.adoption import Continues
from aetheris.protocol.plan.graph import Kind, TaskGraph, ToolPin
from aetheris.protocol.plan.prompts import GOAL_NODE, Brief, whole
from aetheris.protocol.planning.contract import ContractStatus
from aetheris.protocol.planning.goals import goal_graph
from aetheris.protocol.planning.outcome import HasEffect, has_effect
from aetheris.protocol.planning.turns import is_goals, last_turn, status_told


def going_on(job: JobState, known: Continues, brief: Brief, pins: Mapping[str, ToolPin], own: ToolPin) -> TaskGraph:
    """The plan of the job that continues one whose goal a model planned turn by turn: the model is asked to go on.

    Its turns are numbered on, so that no step of it is called as one of the earlier job is.

    Raises:
        KeyError: a tool of the brief is not pinned.
    """
    entry, last = job.entry(GOAL_NODE), last_turn(job)
    said: Mapping[str, Any] = entry.node.args if entry is not None else {}
    calls = (*said.get("earlier", ()), *earlier_calls(job, known))
    first = said.get("first", 1) if last is None else last + 1
    return goal_graph(job.created.goal or "", brief, pins, own, first=first, earlier=calls)


def earlier_calls(job: JobState, known: Continues) -> Iterator[dict[str, Any]]:
    """The calls that the model of an ended job asked for, in order, as prompts.Earlier."""
    own = {one.node_id: one.name for one in known.adopted if one.job_id == job.job_id}
    denied = {action.node_id for action in known.settled if action.verdict == "not_executed"}
    for node_id, entries in job.entries.items():
        entry = entries[-1]
        if not is_goals(entry) or entry.node.kind is not Kind.TOOL:
            continue
        call = {"tool": entry.node.tool_name, "args": _told_args(entry.node.args, own)}
        if node_id in own:
            yield call | _done(job, entry, own[node_id])
        else:
            yield call | _not_done(job, node_id, denied=node_id in denied)


def _done(job: JobState, entry: PlanEntry, name: str) -> dict[str, Any]:
    settled = job.settled_key(entry.node.id)
    effect = has_effect(entry, settled[1]) if settled is not None else HasEffect.POSSIBLE
    confirmed = HasEffect.CONFIRMED if effect is HasEffect.POSSIBLE else effect  # by the word of who continues it
    return {"outcome": ContractStatus.COMPLETED.value, "has_effect": confirmed.value, "result": whole(name)}


def _not_done(job: JobState, node_id: str, *, denied: bool) -> dict[str, Any]:
    settled = job.settled_key(node_id)
    body: dict[str, Any] = {"outcome": ContractStatus.CANCELLED.value, "has_effect": HasEffect.NONE.value}
    if denied:
        return body | {"outcome": ContractStatus.FAILED.value, "error_message": "it was not executed: a person looked"}
    if settled is None:
        return body | {"error_message": "it was never started"}
    reported = status_told(job, node_id)
    if reported["has_effect"] == HasEffect.CONFIRMED.value:
        return body | {"error_message": "it was undone"}
    return body | {name: reported[name] for name in ("outcome", "error_message") if name in reported}


def _told_args(part: Any, own: Mapping[str, str]) -> Any:
    """Arguments in which nothing refers to the earlier job, but to what is adopted of it; a prompt names no secret."""
    if isinstance(part, list):
        return [_told_args(inner, own) for inner in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    held = cast("dict[str, Any]", part)
    if SECRET in held:
        return "(a secret)"
    if HIDDEN in held:
        return "(a hidden value)"
    if len(held) == 1 and isinstance(held.get(REF), str):
        node_id, _, pointer = cast("str", held[REF]).partition("#")
        return {REF: f"{own[node_id]}#{pointer}"} if node_id in own else f"(the result of {node_id})"
    return {name: _told_args(inner, own) for name, inner in held.items()}
