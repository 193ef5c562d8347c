"""What is recorded beside a model's answer: what it asks for, and what the model had been told (docs/models.md); pure.

Nothing follows from it: the goal's body makes the calls.
"""

from aetheris.planner.core.decisions import NewEvent
from aetheris.planner.core.progress import JobProgress
from aetheris.protocol.fold.state import Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.plan.graph import Kind
from aetheris.protocol.planning.goals import decision_of
from aetheris.protocol.planning.turns import is_goals, memory_summary


def decision(progress: JobProgress, node_id: str) -> NewEvent | None:
    """The decision_snapshot of an answer; None for any other call. Of a large answer it says only which it is."""
    job, entry, brief = progress.job, progress.entry(node_id), progress.job.created.brief
    settled = job.settled_key(node_id)
    if brief is None or settled is None or not is_goals(entry) or entry.node.kind is not Kind.LLM:
        return None
    if settled[1].outcome is not Settled.SUCCESS:
        return None
    found = decision_of(brief, node_id, settled[1].result)
    snapshot = ev.DecisionSnapshot(
        job_id=job.job_id,
        goal=job.created.goal or "",
        task_graph=dict(found.task_graph),
        command_id=node_id,
        memory_summary=memory_summary(job, node_id),
        reasoning_summary=found.summary,
    )
    return NewEvent(snapshot, (node_id,), key=None)
