"""What people are told of what starts jobs here: when next, what was started last, and what could start none; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from aetheris.protocol.api_schedules import (
    LONGEST_FAULT,
    MOST_STARTS,
    RefusedStart,
    SchedulerReport,
    StartedJob,
    StartKind,
    ToldStart,
)
from aetheris.scheduler.core.job_starts import JobSchedule, next_time
from aetheris.scheduler.core.starts_file import TopicEntry, WebhookEntry

_LONGEST = 400


class StartSource(NamedTuple):
    """What starts jobs: one entry of the file."""

    kind: StartKind
    name: str


@dataclass(slots=True)
class _Known:
    when: str
    schedule: JobSchedule | None = None
    waits: str | None = None
    last: StartedJob | None = None
    refused: RefusedStart | None = None


class ToldStarts:
    """Of each entry of the file what came of it last; nothing of what was in a message or a delivery."""

    def __init__(
        self, schedules: Iterable[JobSchedule], topics: Iterable[TopicEntry], webhooks: Iterable[WebhookEntry]
    ) -> None:
        self._known = {StartSource("schedule", one.name): _Known(_times(one), one) for one in schedules}
        self._known |= {StartSource("topic", one.name): _Known(_messages(one)) for one in topics}
        self._known |= {StartSource("webhook", one.name): _Known("each signed delivery") for one in webhooks}

    def started(self, source: StartSource, occasion: Mapping[str, Any], job_id: str, at: datetime) -> bool:
        """There is a job of an occasion; whether people are to be told that."""
        known = self._known[source]
        is_new = known.last is None or known.last.job_id != job_id or known.waits is not None
        if is_new:
            known.last, known.waits = StartedJob(job_id=job_id, at=at, occasion=_named(occasion)), None
        return is_new

    def refused(self, source: StartSource, occasion: Mapping[str, Any], code: str, at: datetime) -> None:
        """An occasion starts no job, now or ever."""
        known = self._known[source]
        known.refused, known.waits = RefusedStart(code=code[:100], at=at, occasion=_named(occasion)), None

    def waits(self, source: StartSource, code: str) -> bool:
        """Nothing is started for now; whether people are to be told that."""
        known = self._known[source]
        is_new = known.waits != code[:100]
        known.waits = code[:100]
        return is_new

    def report(self, scheduler: str, now: datetime) -> SchedulerReport:
        """As it is told now."""
        told = [_told(source, known, now) for source, known in list(self._known.items())[:MOST_STARTS]]
        return SchedulerReport(scheduler=scheduler, starts=tuple(told), left_out=len(self._known) - len(told))


def fault_report(scheduler: str, fault: str) -> SchedulerReport:
    """What is told of a file that can't be used: nothing of it starts jobs."""
    return SchedulerReport(scheduler=scheduler, fault=fault[:LONGEST_FAULT])


def _told(source: StartSource, known: _Known, now: datetime) -> ToldStart:
    following = next_time(known.schedule, now) if known.schedule is not None else None
    return ToldStart(
        kind=source.kind,
        name=source.name,
        when=known.when[:_LONGEST],
        next_at=following,
        waits=known.waits,
        last=known.last,
        refused=known.refused,
    )


def _times(schedule: JobSchedule) -> str:
    missed = "all that were missed" if schedule.catch_up == "all" else "the last that was missed"
    return f"{schedule.cron} ({schedule.zone}); {missed} in {schedule.within.total_seconds():g} s"


def _messages(entry: TopicEntry) -> str:
    return f"each {entry.once_per} of {entry.topic}"


def _named(occasion: Mapping[str, Any]) -> str:
    """Where it is from, and not what it says: a key, an id and a value may be a person's."""
    if "due" in occasion:
        return f"due {occasion['due']}"
    if "partition" in occasion:
        return f"partition {occasion['partition']}, offset {occasion['offset']}"
    return "a delivery"
