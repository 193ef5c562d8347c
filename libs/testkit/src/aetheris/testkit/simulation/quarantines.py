"""Tools in quarantine: what the log says for and against a tool, and that nobody's calls wait for anything else."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aetheris.ledger.core.limits import QuarantineLimits
from aetheris.ledger.core.quarantine import concerns_tool
from aetheris.protocol.fold.state import JobState, KeyStatus
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Event


@dataclass(frozen=True, slots=True)
class ToolReport:
    """A try's own word of how its call went, at a place of its job's partition."""

    tool: str
    job_id: str
    offset: int
    works: bool


def report_of(job: JobState, event: Event, offset: int, before: KeyStatus | None) -> ToolReport | None:
    """What an event that counts says of a tool; `before`: how its key stood."""
    if not isinstance(event, ev.ToolInvocationFinished | ev.InvocationInDoubt):
        return None
    if isinstance(event, ev.ToolInvocationFinished) and job.keys[event.idempotency_key].status is before:
        return None
    entry, works = job.entry(event.node_id), concerns_tool(event)
    if entry is None or works is None:
        return None
    return ToolReport(entry.node.tool_name, job.job_id, offset, works)


def may_hold(
    tool: str, reports: Iterable[ToolReport], limits: QuarantineLimits, *, folded: int, released: Mapping[str, int]
) -> bool:
    """Whether what a ledger has folded of its partition, behind the last release that it has read, holds a tool."""
    below = released.get(tool, 0)
    known = [one for one in reports if one.tool == tool and below <= one.offset <= folded]
    last = max((place for place, one in enumerate(known) if one.works), default=-1)
    failed = known[last + 1 :]
    return len(failed) >= limits.after and len({one.job_id for one in failed}) >= limits.jobs
