"""The file that says what starts jobs, and the plans that it names, read once at the start."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

from aetheris.protocol.base.faults import FileFault, placed
from aetheris.runtime.base.refusal import StartRefused
from aetheris.scheduler.core.deliveries import SHORTEST_KEY, key_of
from aetheris.scheduler.core.job_starts import JobSchedule
from aetheris.scheduler.core.starts_file import ScheduleEntry, TopicEntry, WebhookEntry, parsed

_LARGEST_PLAN = 400 * 1024


class StartsUnusable(StartRefused):
    """The file that AETHERIS_STARTS names can't be used, or one that it names: mend it, then start again."""

    code = "starts_unusable"


@dataclass(frozen=True, slots=True)
class TopicTrigger:
    """Whose messages start which plan."""

    entry: TopicEntry
    plan: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WebhookTrigger:
    """Whose signed deliveries start which plan."""

    entry: WebhookEntry
    plan: Mapping[str, Any]
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class LoadedStarts:
    """All that starts jobs."""

    schedules: tuple[JobSchedule, ...]
    triggers: tuple[TopicTrigger, ...]
    webhooks: tuple[WebhookTrigger, ...]


def load(path: Path) -> LoadedStarts:
    """The file and its plans; raises StartsUnusable, naming the file, the line and the field."""
    try:
        found = parsed(path.read_text())
    except OSError as error:
        raise StartsUnusable(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StartsUnusable(f"{path}: is not TOML: it is no UTF-8") from None
    except FileFault as error:
        raise StartsUnusable(f"{placed(path, error.line)}: {error}") from None
    return LoadedStarts(
        tuple(_schedule(path, one) for one in found.schedules),
        tuple(TopicTrigger(one, _plan(path, one)) for one in found.topics),
        tuple(WebhookTrigger(one, _plan(path, one), _key(path, one)) for one in found.webhooks),
    )


def _schedule(path: Path, entry: ScheduleEntry) -> JobSchedule:
    try:
        zone = ZoneInfo(entry.timezone)
    except (OSError, ValueError, KeyError):
        raise StartsUnusable(f"{path}: schedule {entry.name!r}: timezone: there is none of this name") from None
    within = timedelta(seconds=entry.within_s)
    return JobSchedule(entry.name, entry.cron, zone, _plan(path, entry), entry.catch_up, within, entry.since)


def _plan(path: Path, entry: ScheduleEntry | TopicEntry | WebhookEntry) -> Mapping[str, Any]:
    file = path.parent / entry.plan
    try:
        text = file.read_text()
        found: Any = json.loads(text)
    except OSError as error:
        raise StartsUnusable(f"{path}: {entry.name!r}: plan: {file}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise StartsUnusable(f"{path}: {entry.name!r}: plan: {file}: is no JSON") from None
    if not isinstance(found, dict) or len(text) > _LARGEST_PLAN:
        raise StartsUnusable(f"{path}: {entry.name!r}: plan: {file}: is no plan")
    return cast("dict[str, Any]", found)


def _key(path: Path, entry: WebhookEntry) -> bytes:
    file = path.parent / entry.secret
    try:
        return key_of(file.read_text())
    except OSError as error:
        raise StartsUnusable(f"{path}: {entry.name!r}: secret: {file}: {error.strerror}") from None
    except ValueError:  # of base64 and of UTF-8 too
        raise StartsUnusable(
            f"{path}: {entry.name!r}: secret: {file}: holds no key of at least {SHORTEST_KEY} bytes"
        ) from None
