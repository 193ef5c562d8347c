"""What follows a stop: who is undone, in which order, and when a human decides first (docs/compensation.md)."""

from collections.abc import Iterator

from aetheris.planner.core.creations import PLANNER, PLANNER_VERSION
from aetheris.planner.core.decisions import Append, NewEvent, fact
from aetheris.planner.core.progress import JobProgress
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.fold.revisions import unsure
from aetheris.protocol.messages import events as ev
from aetheris.protocol.plan.graph import Node, TaskGraph, compensation_of
from aetheris.protocol.planning.schemas import graph_json

COMPENSATED = "compensated"
QUESTION = "resolve"
"""The wait of a whole job, without a node: whether to undo what was done."""


def due(progress: JobProgress) -> list[str]:
    """The nodes to undo, the last committed first; none where a human said so, or where it was planned before."""
    job = progress.job
    if job.compensations or (job.cancel is not None and not job.cancel.compensate):
        return []
    return progress.committed[::-1]


def is_asked(progress: JobProgress) -> bool:
    """Whether a human must decide first: something failed that may have taken effect."""
    return progress.job.cancel is None and unsure(progress.job) is not None


def question(progress: JobProgress) -> Append | None:
    """The job waits for a cancel, which says whether to compensate; None where that was said."""
    if (QUESTION, None) in progress.job.open_waits or progress.sent.question:
        return None
    progress.sent.question = True
    waiting = ev.JobWaiting(job_id=progress.job.job_id, wait_type=QUESTION, correlation_key=unsure(progress.job))
    return fact(waiting, QUESTION, str(progress.job.revision))


def answered(progress: JobProgress, command_id: str) -> Iterator[NewEvent]:
    """The end of that wait."""
    asked = progress.job.open_waits.get((QUESTION, None))
    if asked is not None:
        ended = ev.WaitCompleted(
            job_id=progress.job.job_id,
            caused_by=command_id,
            wait_type=QUESTION,
            correlation_key=asked.correlation_key,
            command_id=command_id,
        )
        yield NewEvent(ended, (QUESTION, command_id))


def plan(progress: JobProgress, undone: list[str]) -> Append | None:
    """The revision that undoes them, one after another; None where it is on its way."""
    if progress.sent.undo:
        return None
    progress.sent.undo = True
    job = progress.job
    diff = graph_json(TaskGraph(nodes=tuple(_chain(progress, undone))))
    planned = ev.PlanGenerated(
        job_id=job.job_id,
        revision=job.revision + 1,
        plan_hash=digest(diff),
        diff=diff,
        planner=PLANNER,
        planner_version=PLANNER_VERSION,
    )
    return fact(planned, str(planned.revision), planned.plan_hash)


def reported(progress: JobProgress, node_id: str) -> Iterator[NewEvent]:
    """What a compensation's success says of the node that it undid."""
    job, undone = progress.job, progress.entry(node_id).node.compensates
    if undone is None or not progress.is_undone(node_id):
        return
    key, state = job.settled_key(node_id) or ("", None)
    yield NewEvent(ev.StepCompensated(job_id=job.job_id, node_id=node_id, compensates=undone), (node_id,), key)
    finished = ev.NodeFinished(
        job_id=job.job_id,
        node_id=undone,
        step_index=job.places[undone],
        attempt=state.invocation_count if state is not None else 0,
        result_type=COMPENSATED,
    )
    yield NewEvent(finished, (undone, COMPENSATED), key)


def undone(progress: JobProgress) -> tuple[str, ...] | None:
    """The nodes that were undone, in that order; None if none was."""
    nodes = (progress.entry(undo).node.compensates for undo in progress.job.compensations if progress.is_undone(undo))
    return tuple(node for node in nodes if node is not None) or None


def _chain(progress: JobProgress, undone: list[str]) -> Iterator[Node]:
    before: tuple[str, ...] = ()
    for node_id in undone:
        undo = compensation_of(progress.entry(node_id).node)
        if undo is not None:
            yield undo.model_copy(update={"depends_on": before})
            before = (undo.id,)
