"""What a log that was restored from a backup says before anything goes on: its fence (docs/backup.md).

The external systems are newer than such a log. What a job did behind the backup's end is not known, nor which jobs were
created there; so every open job is paused, each for a person to let go on, and every tenant is frozen.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.fold.state import JobState, KeyStatus, PlanEntry
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import FreezeOrder
from aetheris.protocol.plan.graph import EffectClass
from aetheris.protocol.tables.freeze_orders import FreezeOrders

NOT_BEGUN = "not begun"


@dataclass(frozen=True, slots=True)
class UncertainStep:
    """A step of which the backup does not say whether it took effect; `stands`: as what the backup has it."""

    node_id: str
    tool: str | None
    effect_class: str
    stands: str


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job that was open where the backup ends; `paused` False: it can't be, and the freeze of its tenant alone
    holds it."""

    job_id: str
    tenant: str
    submitted_by: str
    partition: int
    paused: bool
    uncertain: tuple[UncertainStep, ...]


def is_open(job: JobState) -> bool:
    """Whether anything of it may still start."""
    return job.terminal is None and not job.sealed


def pause(job: JobState, by: str, reason: str) -> list[ev.JobResumed | ev.JobPaused]:
    """What pauses an open job for this reason, also where somebody has paused it before; nothing where a cancel holds:
    such a job is not paused."""
    if not is_open(job) or job.cancel is not None or job.needs_upgrade:
        return []
    said: list[ev.JobResumed | ev.JobPaused] = []
    if job.paused is not None:
        said.append(ev.JobResumed(job_id=job.job_id, number=job.pauses, by=by, reason=reason))
        reason = f"{reason}; before that paused by {job.paused.by}"
    said.append(ev.JobPaused(job_id=job.job_id, number=job.pauses + 1, by=by, reason=reason))
    return said


def freezes(orders: FreezeOrders, tenants: Iterable[str], by: str, at: str, reason: str) -> Iterator[FreezeOrder]:
    """What freezes each tenant for this reason, also where somebody has frozen it before."""
    for tenant in dict.fromkeys(tenants):
        scope = FreezeScope(tenant=tenant)
        last = orders.last(scope.key)
        number, said = (0 if last is None else last.number), reason
        if last is not None and last.frozen:
            yield FreezeOrder(scope=scope, number=number, frozen=False, by=by, at=at, reason=reason)
            said = f"{reason}; before that frozen by {last.by}"
        yield FreezeOrder(scope=scope, number=number + 1, frozen=True, by=by, at=at, reason=said)


def uncertain(job: JobState) -> Iterator[UncertainStep]:
    """The steps that may have taken effect where the backup does not reach: what is not settled, and not pure."""
    for node_id, entries in job.entries.items():
        entry = entries[-1]
        if node_id in job.finished or job.settled_key(node_id) is not None or not _may_act(entry):
            continue
        keys = [job.keys[key] for key in job.node_keys.get(node_id, ())]
        begun = [key.status for key in keys if key.status is not KeyStatus.NONE]
        stands = begun[-1].value if begun else NOT_BEGUN
        yield UncertainStep(node_id, entry.node.tool, entry.effect_class.value, stands)


def _may_act(entry: PlanEntry) -> bool:
    """A body is pure by itself, and its calls may not be."""
    return entry.effect_class is not EffectClass.PURE or entry.node.kind == "workflow"
