"""How a goal's turns stand in a job: what its model was asked, and what it is told of a call; pure."""

from typing import Any

from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.state import JobState, PlanEntry, Settled
from aetheris.protocol.plan.graph import Kind, Name, dependencies
from aetheris.protocol.plan.prompts import GOAL_NODE, turn_of
from aetheris.protocol.planning.outcome import HasEffect, error_told, has_effect, step_status, structured


def is_goals(entry: PlanEntry) -> bool:
    """Whether a call is one of a goal's body."""
    return entry.call is not None and entry.call.parent == GOAL_NODE


def last_turn(job: JobState) -> int | None:
    """The number of its newest question; None where it has asked nothing."""
    return max((turn for name in job.entries if (turn := turn_of(name)) is not None), default=None)


def memory_summary(job: JobState, node_id: Name) -> str | None:
    """What the model had before it when it answered: how much of which, as its question says it word by word."""
    entry = job.entry(node_id)
    args = entry.node.args if entry is not None else {}
    turns, earlier = args.get("turns", ()), args.get("earlier", ())
    results = sum(len(one.get("results", ())) for one in turns)
    said = [f"{len(turns)} earlier answers and {results} results of their calls"] if turns else []
    if earlier and job.created.continues is not None:
        said.append(f"{len(earlier)} calls of job {job.created.continues.job_id}")
    return "; ".join(said) or None


def status_told(job: JobState, node_id: Name) -> dict[str, Any]:
    """What the model is told of a call that has no result: it needn't guess from words (docs/models.md)."""
    settled, entry = job.settled_key(node_id), job.entry(node_id)
    if settled is None or entry is None:
        raise KeyError(node_id)
    key, state = settled
    body = structured(entry, state, step_status(state), error_told(state.reason, state.detail))
    known = {name: value for name, value in body.items() if value is not None}
    return known | {"execution_id": execution_id(job.job_id, node_id, key)}


def gone_without(job: JobState, node_id: Name) -> bool:
    """Of a plan that a model's revisions made: a call that surely took no effect, and that nothing of it needs."""
    brief, entry = job.created.brief, job.entry(node_id)
    if brief is None or brief.planning != "agent" or entry is None or entry.node.kind is not Kind.TOOL:
        return False
    settled = job.settled_key(node_id)
    if node_id not in job.finished or settled is None or settled[1].outcome is Settled.SUCCESS:
        return False
    needed = any(node_id in dependencies(entries[-1].node) for entries in job.entries.values())
    return has_effect(entry, settled[1]) is HasEffect.NONE and not needed
