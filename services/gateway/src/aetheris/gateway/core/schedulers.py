"""What a tenant's schedulers told, each under its principal: what is kept of it, and what people are shown. Pure.

Whoever may submit can tell what he likes here, of schedulers under his own name: it starts nothing, and a job is shown
beside it only where he submitted it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from aetheris.gateway.core.problems import ConflictProblem
from aetheris.protocol.api_schedules import (
    TOLD_EVERY_S,
    RefusedStartView,
    SchedulerReport,
    SchedulerView,
    StartedJobView,
    StartView,
    ToldStart,
)

KEPT = timedelta(days=7)
"""Of a scheduler that tells nothing any more."""
MOST_SCHEDULERS = 8
"""Of one principal."""
_HEARD_WITHIN = timedelta(seconds=3 * TOLD_EVERY_S)


class ToldScheduler(BaseModel):
    """What one told, when."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    by: str
    at: AwareDatetime
    report: SchedulerReport


class Replacement(NamedTuple):
    """What is to be kept of a scheduler, under which field, and the fields that are to go."""

    field: str
    told: ToldScheduler
    gone: tuple[str, ...]


class JobStanding(NamedTuple):
    """Whose job it is, and how it stands."""

    tenant: str
    submitted_by: str
    status: str


def field_of(by: str, scheduler: str) -> str:
    """What a scheduler is kept under, among those of its tenant: names have no such character."""
    return f"{by}\n{scheduler}"


def read(values: Mapping[str, bytes]) -> dict[str, ToldScheduler]:
    """Those that are kept; what can't be read is none."""
    found: dict[str, ToldScheduler] = {}
    for name, value in values.items():
        try:
            found[name] = ToldScheduler.model_validate_json(value)
        except ValidationError:
            continue
    return found


def replacement(kept: Mapping[str, ToldScheduler], by: str, report: SchedulerReport, now: datetime) -> Replacement:
    """What is kept once this was told: what it does not know any more, as after a restart, stays as it was told before.

    Raises:
        Conflict: the principal has too many that live.
    """
    field = field_of(by, report.scheduler)
    before = kept.get(field)
    starts = _with_earlier(report.starts, before.report.starts if before is not None else ())
    if report.fault is not None and before is not None:
        starts = tuple(one.model_copy(update={"next_at": None}) for one in before.report.starts)
    gone = [name for name, one in kept.items() if name != field and now - one.at > KEPT]
    others = [name for name, one in kept.items() if one.by == by and name != field and name not in gone]
    for name in sorted(others, key=lambda name: kept[name].at)[: max(0, len(others) - MOST_SCHEDULERS + 1)]:
        if now - kept[name].at <= _HEARD_WITHIN:
            message = f"scheduler: {MOST_SCHEDULERS} others of this principal live: give them names that stay"
            raise ConflictProblem("too_many_schedulers", message)
        gone.append(name)
    told = ToldScheduler(by=by, at=now, report=report.model_copy(update={"starts": starts}))
    return Replacement(field, told, tuple(gone))


def shown(
    kept: Iterable[ToldScheduler], tenant: str, jobs: Mapping[str, JobStanding], now: datetime
) -> tuple[SchedulerView, ...]:
    """Those that were heard lately enough, by name."""
    lately = sorted((one for one in kept if now - one.at <= KEPT), key=lambda one: (one.by, one.report.scheduler))
    return tuple(_shown(one, tenant, jobs, now) for one in lately)


def _shown(told: ToldScheduler, tenant: str, jobs: Mapping[str, JobStanding], now: datetime) -> SchedulerView:
    report = told.report
    return SchedulerView(
        scheduler=report.scheduler,
        by=told.by,
        at=told.at.isoformat(),
        is_heard=now - told.at <= _HEARD_WITHIN,
        fault=report.fault,
        starts=tuple(_start(one, tenant, told.by, jobs) for one in report.starts),
        left_out=report.left_out,
    )


def _start(told: ToldStart, tenant: str, by: str, jobs: Mapping[str, JobStanding]) -> StartView:
    last, refused = told.last, told.refused
    job = jobs.get(last.job_id) if last is not None else None
    is_theirs = job is not None and (job.tenant, job.submitted_by) == (tenant, by)
    return StartView(
        kind=told.kind,
        name=told.name,
        when=told.when,
        next_at=told.next_at.isoformat() if told.next_at is not None else None,
        waits=told.waits,
        last=None
        if last is None
        else StartedJobView(
            job_id=last.job_id,
            at=last.at.isoformat(),
            occasion=last.occasion,
            status=job.status if job is not None and is_theirs else None,
        ),
        refused=None
        if refused is None
        else RefusedStartView(code=refused.code, at=refused.at.isoformat(), occasion=refused.occasion),
    )


def _with_earlier(starts: Iterable[ToldStart], before: Iterable[ToldStart]) -> tuple[ToldStart, ...]:
    known = {(one.kind, one.name): one for one in before}
    found: list[ToldStart] = []
    for one in starts:
        earlier = known.get((one.kind, one.name))
        kept = {} if earlier is None else {"last": one.last or earlier.last, "refused": one.refused or earlier.refused}
        found.append(one.model_copy(update=kept))
    return tuple(found)
