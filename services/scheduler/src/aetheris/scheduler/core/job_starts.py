"""What starts jobs, when, and by which key: the same occasion always names the same job; pure."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal, cast

from cronsim import CronSim

from aetheris.protocol.base.references import HIDDEN, REF, SECRET

START = "$start"
"""In a plan: {"$start": "/pointer"}, a part of the occasion."""
MOST_AT_ONCE = 1000
"""Due times of one schedule that are made up for together; the latest ones."""
_RESERVED = frozenset({START, REF, SECRET, HIDDEN})

CatchUp = Literal["last", "all"]


class OccasionRefused(ValueError):
    """No job can be started by it: it lacks what the plan asks for, or would be more than data in it."""


@dataclass(frozen=True, slots=True)
class JobSchedule:
    """Times at which a job is started.

    `within` is how long after its time a missed one is still started; nothing is due before `since`.
    """

    name: str
    cron: str
    zone: tzinfo
    plan: Mapping[str, Any]
    catch_up: CatchUp
    within: timedelta
    since: datetime | None = None


def due_times(schedule: JobSchedule, after: datetime, until: datetime) -> list[datetime]:
    """The times after one and up to, with, another at which a job must be there: all of them, or the last one."""
    begin = max(after, until - schedule.within)
    if schedule.since is not None:
        begin = max(begin, schedule.since - timedelta(microseconds=1))
    found: list[datetime] = []
    for due in _times(schedule, begin):
        if due > until:
            break
        found = [*found[-(MOST_AT_ONCE - 1) :], due]
    return found[-1:] if schedule.catch_up == "last" else found


def next_time(schedule: JobSchedule, after: datetime) -> datetime | None:
    """The next time after this one; None where there is none within 50 years."""
    begin = after if schedule.since is None else max(after, schedule.since - timedelta(microseconds=1))
    return next(_times(schedule, begin), None)


def schedule_key(schedule: str, due: datetime) -> str:
    """The Idempotency-Key of a due time."""
    return _key("schedule", schedule, due.astimezone(UTC).isoformat())


def message_key(trigger: str, *occasion: str) -> str:
    """The Idempotency-Key of a message: of its place, or of its own key."""
    return _key("message", trigger, *occasion)


def delivery_key(webhook: str, delivery: str) -> str:
    """The Idempotency-Key of a delivery to a webhook."""
    return _key("webhook", webhook, delivery)


def filled(plan: Mapping[str, Any], occasion: Mapping[str, Any]) -> dict[str, Any]:
    """A plan with what it names of the occasion in its place.

    Raises:
        OccasionRefused: a pointer leads nowhere, or what is there would name a result, a secret or the like.
    """
    return cast("dict[str, Any]", _filled(plan, occasion))


def _filled(value: Any, occasion: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        if set(members) == {START}:
            return _data(_at(occasion, members[START]), members[START])
        return {name: _filled(one, occasion) for name, one in members.items()}
    return [_filled(one, occasion) for one in cast("list[Any]", value)] if isinstance(value, list) else value


def _at(value: Any, pointer: Any) -> Any:
    if not isinstance(pointer, str) or not pointer.startswith("/"):
        raise OccasionRefused(f"{START} is no JSON Pointer")
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping) and name in value:
            value = cast("Mapping[str, Any]", value)[name]
        elif (
            isinstance(value, list) and name.isdecimal() and len(name) < 7 and int(name) < len(cast("list[Any]", value))
        ):
            value = cast("list[Any]", value)[int(name)]
        else:
            raise OccasionRefused(f"{pointer} leads nowhere")
    return value


def _data(value: Any, pointer: str) -> Any:
    """What comes from elsewhere is data: it names no result, no secret, and nothing hidden."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if not _RESERVED.isdisjoint(members):
            raise OccasionRefused(f"{pointer} holds what only a plan may name")
        return {name: _data(one, pointer) for name, one in members.items()}
    return [_data(one, pointer) for one in cast("list[Any]", value)] if isinstance(value, list) else value


def _times(schedule: JobSchedule, after: datetime) -> Iterator[datetime]:
    return (one.astimezone(UTC) for one in CronSim(schedule.cron, after.astimezone(schedule.zone)))


def _key(*parts: str) -> str:
    return f"start-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()}"
