"""The jobs that a job has begun, and the one that began it, from its fold (docs/workflows.md, "Jobs of its own")."""

from collections.abc import Iterator
from typing import Any

from aetheris.protocol.fold.state import JobState, PlanEntry
from aetheris.protocol.messages.begun import child_job_id, end_key
from aetheris.protocol.plan.graph import JOB_START
from aetheris.protocol.planning.child_jobs import begins_job, has_begun, is_detached, successor_of


def related_view(job: JobState) -> dict[str, Any]:
    """`begun`, `children` and `continued_as`, as far as there are any."""
    view: dict[str, Any] = {}
    begun = job.created.begun
    if begun is not None:
        view["begun"] = {
            "job_id": begun.job_id,
            "node_id": begun.node_id,
            "replaces": begun.replaces,
            "awaited_by": begun.awaited_by.job_id if begun.awaited_by is not None else None,
        }
    children = [one for node_id, entries in job.entries.items() for one in _begun_by(job, node_id, entries[-1])]
    if children:
        view["children"] = children
    following = successor_of(job)
    if following is not None:
        view["continued_as"] = child_job_id(job.job_id, following)
    return view


def _begun_by(job: JobState, node_id: str, entry: PlanEntry) -> Iterator[dict[str, Any]]:
    """The job that a call has begun, and those that went on in its place, as far as this job was told."""
    if not begins_job(entry) or entry.node.tool != JOB_START or not has_begun(job, node_id):
        return
    wanted: str | None = child_job_id(job.job_id, node_id)
    seen: set[str] = set()
    while wanted is not None and wanted not in seen:
        seen.add(wanted)
        signal = job.signals.get(end_key(wanted))
        told: dict[str, Any] = signal.payload if signal is not None and isinstance(signal.payload, dict) else {}
        child = {"job_id": wanted, "node_id": node_id, "workflow": str(entry.node.args.get("workflow"))}
        following = told.get("continued_as")
        wanted = following if isinstance(following, str) else None
        yield child | {"detached": is_detached(entry), "status": told.get("status"), "continued_as": wanted}
