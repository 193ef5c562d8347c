"""A goal's body over a completed job's record: it asks for what is recorded, and for nothing else."""

from collections.abc import Iterable

from aetheris.protocol.fold.job_log import fold_event
from aetheris.protocol.fold.state import JobState, KeyStatus
from aetheris.protocol.plan.prompts import GOAL_NODE
from aetheris.sdk.workflows.bodies import Asked, BodySaid, BodyStart, Idle, Returned, settled_call
from aetheris.testkit.simulation.log import Entry
from aetheris.tool_executor.goal_bodies import GoalBodies

_BODY = "replay"


def replay_goal(job: JobState, entries: Iterable[Entry]) -> str | None:
    """What it does instead; None where it makes the recorded calls once more, and comes to the same end."""
    said: list[BodySaid] = []
    goal = GoalBodies(said.append)
    node = job.entries[GOAL_NODE][-1].node
    pins = job.bodies.pins if job.bodies is not None else {}
    goal.run(BodyStart(_BODY, "", job.job_id, node.id, node.args, node.args, pins))
    for node_id in _settled(entries):
        entry = job.entries[node_id][-1]
        state = job.keys[entry.call.key] if entry.call is not None else None
        if state is not None:
            goal.settled(_BODY, [settled_call(node_id, state, state.result)])
    asked = {one.node["id"] for one in said if isinstance(one, Asked)}
    made = {name for name, found in job.entries.items() if found[-1].call is not None}
    end = next((one for one in reversed(said) if not isinstance(one, Asked | Idle)), None)
    settled = job.settled_key(GOAL_NODE)
    result = end.result if isinstance(end, Returned) else None
    if asked != made or settled is None or settled[1].result != result:
        return f"{GOAL_NODE} of {job.job_id} asks for {sorted(asked ^ made)} besides, and ends with {end}"
    return None


def _settled(entries: Iterable[Entry]) -> list[str]:
    """The body's calls, in the order in which they have settled."""
    job: JobState | None = None
    found: dict[str, None] = {}
    for one in entries:
        job, counts = fold_event(job, one.body, one.record.offset)
        node_id = getattr(one.body, "node_id", None)
        entry = job.entry(node_id) if job is not None and isinstance(node_id, str) and counts else None
        if job is None or entry is None or entry.call is None or entry.call.key not in job.keys:
            continue
        if job.keys[entry.call.key].status is KeyStatus.SETTLED:
            found.setdefault(entry.node.id)
    return list(found)
