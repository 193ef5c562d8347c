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


def sleeps_on(job: JobState, key: str, until: Iterable[str]) -> bool:
    """Whether a body that has just come to sleep, as history tells, does so until something more comes of its job."""
    state = job.keys[key]
    if job.stopping is not None or job.cancel is not None or job.terminal is not None or state.cancel_requested:
        return False
    if state.started is None or len(job.node_keys[state.node_id]) > 1:
        return False
    is_planned = job.entry(state.node_id, state.started.revision) is job.entry(state.node_id)
    return is_planned and not is_woken(job, until)


def _is_settled(job: JobState, node_id: str) -> bool:
    entry = job.entry(node_id)
    return entry is None or entry.call is None or job.settled_key(node_id) is not None
