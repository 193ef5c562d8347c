"""What follows from a model's answer: the decision, and the revision that it adds (docs/models.md); pure.

The model has been asked by then, and its answer is in the log: who decides again decides the same.
"""

from collections.abc import Iterator

from aetheris.planner.core.creations import BY_MODEL, PLANNER_VERSION
from aetheris.planner.core.decisions import Append, LoadArguments, NewEvent, Output
from aetheris.planner.core.progress import JobFailure, JobProgress
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.plan.graph import TaskGraph
from aetheris.protocol.planning.answers import Following, failure_report, following
from aetheris.protocol.planning.invocation import Blobs, success
from aetheris.protocol.planning.schemas import graph_json
from aetheris.protocol.planning.turns import turn_of

NO_NODES = {"nodes": list[object]()}
"""The task graph of a decision that adds nothing."""


def answered(progress: JobProgress) -> Iterator[Output]:
    """The decision that the newest answer comes to; a large answer must be loaded first."""
    node_id = progress.answered
    if node_id is None or progress.sent.decided == node_id or progress.is_stopping or progress.failure is not None:
        return
    ref = success(progress.job, node_id).result_ref
    if ref is not None:
        yield LoadArguments(progress.job.job_id, node_id, (ref,))
    else:
        yield from decided(progress, {})


def decided(progress: JobProgress, blobs: Blobs | None) -> Iterator[Output]:
    """decision_snapshot, with the plan_generated that it leads to; None for an answer that can't be loaded now."""
    job, node_id, brief = progress.job, progress.answered, progress.brief
    if node_id is None or brief is None or blobs is None:
        return
    progress.sent.decided = node_id
    state = success(job, node_id)
    result = blobs[state.result_ref.sha256] if state.result_ref is not None else state.result
    found = following(job, brief, turn_of(node_id), result, progress.spent)
    diff = graph_json(TaskGraph(nodes=found.nodes)) if found.nodes else None
    snapshot = ev.DecisionSnapshot(
        job_id=job.job_id,
        goal=job.created.goal or "",
        task_graph=diff or NO_NODES,
        command_id=node_id,
        memory_summary=_told_before(job, node_id),
        reasoning_summary=found.summary,
    )
    facts = [NewEvent(snapshot, (node_id,), key=None)]
    if diff is not None:
        facts.append(_revision(progress, diff))
    yield Append(tuple(facts))
    if diff is None:
        _end_of_plan(progress, found)


def reported_turns(progress: JobProgress) -> Iterator[Output]:
    """The question that tells the model what failed, once all calls beside it have ended; or the job's end."""
    job, brief = progress.job, progress.brief
    if brief is None or progress.is_stopping or progress.failure is not None or progress.sent.reported > job.revision:
        return
    found = failure_report(job, brief)
    if found is None:
        return
    if found.turns > brief.limits.failed_turns:
        reason = job.settled_key(found.node_id)
        why = reason[1].reason if reason is not None else None
        limit = f"limit_failed_turns: {brief.limits.failed_turns} turns with a failed call are allowed"
        progress.failure = JobFailure(found.node_id, f"{limit}; {found.node_id}: {why or 'failed'}")
        return
    progress.sent.reported = job.revision + 1
    yield Append((_revision(progress, graph_json(TaskGraph(nodes=(found.question,)))),))


def _revision(progress: JobProgress, diff: dict[str, object]) -> NewEvent:
    job = progress.job
    planned = ev.PlanGenerated(
        job_id=job.job_id,
        revision=job.revision + 1,
        plan_hash=digest(diff),
        diff=diff,
        planner=BY_MODEL,
        planner_version=PLANNER_VERSION,
    )
    return NewEvent(planned, (str(planned.revision), planned.plan_hash))


def _told_before(job: JobState, node_id: str) -> str | None:
    """What the model had before it when it answered: how much of which, as its question says it word by word."""
    entry = job.entry(node_id)
    args = entry.node.args if entry is not None else {}
    turns, earlier = args.get("turns", ()), args.get("earlier", ())
    results = sum(len(one.get("results", ())) for one in turns)
    said = [f"{len(turns)} earlier answers and {results} results of their calls"] if turns else []
    if earlier and job.created.continues is not None:
        said.append(f"{len(earlier)} calls of job {job.created.continues.job_id}")
    return "; ".join(said) or None


def _end_of_plan(progress: JobProgress, found: Following) -> None:
    """Nothing more is planned: the job completes when what there is has ended, or fails for the reason named."""
    progress.answered = None
    if found.failure is not None:
        progress.failure = JobFailure(None, found.failure)
