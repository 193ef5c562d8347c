"""Jobs that begin by a call of another's body: what is submitted for it, and what that one is told of its end.

(docs/workflows.md, "Jobs of its own".) The call is one of a tool like any other; that it has succeeded is what has the
job begin. All of its submission follows from the log of the job whose call it is: said again, it is the same.
"""

from typing import Any, cast

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.keys import canonical_args, key_of_canonical
from aetheris.protocol.fold.state import JobState, PlanEntry, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.begun import MOST_DEEP, AwaitedBy, Begun, child_job_id, end_key
from aetheris.protocol.messages.commands import BeginJob, CancelChild, JobEnded
from aetheris.protocol.plan.graph import JOB_CONTINUE, JOB_START, JOB_TOOLS, WORKFLOW_NODE, InvalidPlan, JobOptions

TOO_LARGE = "its result is too large for a record: a child job returns at most 64 KiB"
Told = dict[str, Any]
"""What a job is told of another's end: job_id, status, and result, error or continued_as (job_id of the next)."""


def begins_job(entry: PlanEntry) -> bool:
    """Whether a node is a body's call that has a job begin; the same name in a plan is any tool's."""
    return entry.call is not None and entry.node.tool in JOB_TOOLS


def is_detached(entry: PlanEntry) -> bool:
    """Whether the job that it begins goes on when its own has ended, and tells nobody of its end."""
    return entry.node.tool == JOB_START and entry.node.args.get("detached") is True


def successor_of(job: JobState) -> str | None:
    """The node whose call has the job's successor begin: the first that has succeeded, if it has completed."""
    if not isinstance(job.terminal, ev.JobCompleted) or job.bodies is None:
        return None
    calls = (name for name, entries in job.entries.items() if entries[-1].node.tool == JOB_CONTINUE)
    return next((name for name in calls if begins_job(job.entries[name][-1]) and has_begun(job, name)), None)


def has_begun(job: JobState, node_id: str) -> bool:
    """Whether a node's call has succeeded."""
    settled = job.settled_key(node_id)
    return settled is not None and settled[1].outcome is Settled.SUCCESS


def check_begun(command: BeginJob) -> None:
    """Whether a submission is that of the call that it names.

    Raises:
        InvalidPlan: it is not, or too many jobs stand above it.
    """
    begun = command.begun
    if begun.depth > MOST_DEEP:
        raise InvalidPlan("begun.depth", f"more than {MOST_DEEP} jobs, each begun by the next")
    if command.job_id != child_job_id(begun.job_id, begun.node_id) or begun.idempotency_key != key_of_begun(
        begun, command.plan or {}
    ):
        raise InvalidPlan("begun", "does not follow from the call that it names")


def key_of_begun(begun: Begun, plan: dict[str, Any]) -> str | None:
    """The idempotency key of the call from which a job's plan follows; None where it follows from none."""
    nodes = plan.get("nodes")
    if not isinstance(nodes, list) or len(cast("list[Any]", nodes)) != 1:
        return None
    node = cast("dict[str, Any]", nodes[0])
    args: dict[str, Any] = {"workflow": node.get("tool"), "args": node.get("args", {})}
    if not begun.replaces:
        args["detached"] = begun.awaited_by is None
    tool = JOB_CONTINUE if begun.replaces else JOB_START
    return key_of_canonical(begun.job_id, begun.node_id, tool, canonical_args(args))


def begun_by(job: JobState, node_id: str) -> BeginJob:
    """The submission that follows from a call that has succeeded.

    Raises:
        LookupError: there is no such call.
    """
    entry, settled = job.entry(node_id), job.settled_key(node_id)
    if entry is None or settled is None:
        raise LookupError(node_id)
    created, replaces = job.created, entry.node.tool == JOB_CONTINUE
    before = created.begun
    awaited_by = before.awaited_by if before is not None else None
    if not replaces:
        awaited_by = None if is_detached(entry) else AwaitedBy(job_id=job.job_id, as_of=job.last_offset)
    child = child_job_id(job.job_id, node_id)
    plan = _plan(job, entry)
    return BeginJob(
        job_id=child,
        by=created.submitted_by,
        tenant=created.tenant,
        request_hash=digest([child, plan]),
        plan=plan,
        agent=created.agent,
        session=created.session,
        labels=created.labels,
        options=created.options if created.options is not None else JobOptions(),
        begun=Begun(
            job_id=job.job_id,
            node_id=node_id,
            idempotency_key=settled[0],
            depth=(before.depth if before is not None else 0) + (0 if replaces and before is not None else 1),
            replaces=replaces,
            awaited_by=awaited_by,
        ),
    )


def refused(command: BeginJob, why: str) -> JobEnded | None:
    """What who waits is told where no job can come of the submission."""
    awaited_by = command.begun.awaited_by
    if awaited_by is None:
        return None
    return _told(command.tenant, command.by, awaited_by, {"job_id": command.job_id, "status": "refused", "error": why})


def end_of(job: JobState) -> JobEnded | None:
    """What who waits for a job is told of its end; None where nobody waits, or it has not ended."""
    created = job.created
    if created.begun is None or created.begun.awaited_by is None or job.terminal is None:
        return None
    said = {"job_id": job.job_id} | _how_it_ended(job, job.terminal)
    return _told(created.tenant, created.submitted_by, created.begun.awaited_by, said)


def cancel_of(job: JobState, child: str) -> CancelChild:
    """The word that a job's stop says to one that it has begun: what that has done is undone where its own is."""
    compensate = job.cancel.compensate if job.cancel is not None else not isinstance(job.terminal, ev.JobCompleted)
    return CancelChild(
        job_id=child,
        by=job.cancel.by if job.cancel is not None else job.created.submitted_by,
        tenant=job.created.tenant,
        reason=f"job {job.job_id}, which has begun it, {'has ended' if job.cancel is None else 'is cancelled'}",
        compensate=compensate,
    )


def _plan(job: JobState, entry: PlanEntry) -> dict[str, Any]:
    """One node that runs the workflow, with all that the job itself may call."""
    args = entry.node.args
    node = {"id": WORKFLOW_NODE, "kind": "workflow", "tool": args.get("workflow"), "args": args.get("args")}
    pins = job.bodies.pins if job.bodies is not None else {}
    tools = {name: pin.model_dump(mode="json", exclude_defaults=True) for name, pin in pins.items()}
    return {"tools": tools, "nodes": [node]}


def _how_it_ended(job: JobState, end: ev.Event) -> Told:
    if isinstance(end, ev.JobFailed):
        return {"status": "failed", "error": end.error}
    if not isinstance(end, ev.JobCompleted):
        return {"status": "cancelled", "error": getattr(end, "reason", None) or "cancelled"}
    following = successor_of(job)
    if following is not None:
        return {"status": "completed", "continued_as": child_job_id(job.job_id, following)}
    result = end.result or {}
    if WORKFLOW_NODE not in result:
        return {"status": "completed", "error": TOO_LARGE}
    return {"status": "completed", "result": result[WORKFLOW_NODE]}


def _told(tenant: str, by: str, awaited_by: AwaitedBy, said: Told) -> JobEnded:
    return JobEnded(
        job_id=awaited_by.job_id,
        by=by,
        tenant=tenant,
        correlation_key=end_key(said["job_id"]),
        payload=said,
        as_of=awaited_by.as_of,
    )
