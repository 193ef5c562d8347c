"""What jobs wait for, and whether only somebody's word lets them go on."""

from collections.abc import Sequence

from aetheris.protocol.fold.state import IN_FLIGHT, JobState
from aetheris.views.standing import job_status

_BY_ITSELF = frozenset({"timer", "duplicate"})
"""What a job may wait for that needs nobody's word."""


def awaited_keys(job: JobState) -> Sequence[str]:
    """The keys of signals that nodes of a job wait for, or have waited for."""
    waits = (entries[-1].node.wait for entries in job.entries.values())
    return [one.key for one in waits if one is not None and one.key is not None]


def rests(job: JobState) -> bool:
    """Whether only somebody's word lets it go on."""
    status = job_status(job)
    if job.terminal is not None or status == "paused":
        return True
    if any(kind in _BY_ITSELF for kind, _ in job.open_waits):
        return False
    return status == "waiting" or (bool(job.open_waits) and not _is_called(job))


def _is_called(job: JobState) -> bool:
    """Whether something is under way but the code of workflows, which waits for what it has called."""
    bodies = job.bodies.of if job.bodies is not None else {}
    return any(one.status in IN_FLIGHT and one.node_id not in bodies for one in job.keys.values())
