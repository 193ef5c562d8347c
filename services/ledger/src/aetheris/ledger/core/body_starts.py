"""When a body that sleeps may run again, and whether what a body has planned may still start; pure."""

from collections.abc import Iterable

from aetheris.protocol.fold.bodies import may_start_first
from aetheris.protocol.fold.state import JobState, PlanEntry


def may_run_first(job: JobState, entry: PlanEntry) -> bool:
    """Whether the body that has planned the call last may still start it; always, where none has planned it."""
    return entry.call is None or may_start_first(job, entry.call.parent, entry.call.invocation_id)


def is_woken(job: JobState, until: Iterable[str]) -> bool:
    """Whether a body that sleeps until one of these nodes settles is to run: also where one is not planned at all."""
    nodes = tuple(until)
    return not nodes or any(_is_settled(job, node_id) for node_id in nodes)


def _is_settled(job: JobState, node_id: str) -> bool:
    entry = job.entry(node_id)
    return entry is None or entry.call is None or job.settled_key(node_id) is not None
