"""The file that says what starts jobs (docs/schedules.md); pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, cast

from cronsim import CronSim, CronSimError
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from aetheris.protocol.base.faults import FileFault, first_fault, toml_document, toml_key_line, toml_line
from aetheris.scheduler.core.job_starts import CatchUp

MAX_BYTES = 256 * 1024
_ARRAYS = ("schedules", "topics", "webhooks")
_LONG_AGO = datetime(2000, 1, 1)  # noqa: DTZ001  only whether cron's text can be read is asked
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
_Path = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class _StartEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: _Name
    plan: _Path
    """A file with a submission's plan, JSON, seen from this one."""


class ScheduleEntry(_StartEntry):
    """`[[schedules]]`: as cron has it, in a time zone."""

    cron: Annotated[str, StringConstraints(max_length=200)]
    timezone: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_+/-]{1,64}$")] = "UTC"
    catch_up: CatchUp = "last"
    within_s: float = Field(default=3600.0, ge=60, le=31 * 86400)
    since: AwareDatetime | None = None

    @model_validator(mode="after")
    def _can_be_read(self) -> "ScheduleEntry":
        if len(self.cron.split()) != 5:
            raise ValueError("cron: five fields, as in 30 2 * * 1-5")
        try:
            CronSim(self.cron, _LONG_AGO)
        except CronSimError as error:
            raise ValueError(f"cron: {error}") from None
        return self


class TopicEntry(_StartEntry):
    """`[[topics]]`: a job for each message of a topic, or for each key of its messages."""

    topic: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
    once_per: Annotated[str, StringConstraints(pattern=r"^(message|key)$")] = "message"

    @model_validator(mode="after")
    def _is_not_ours(self) -> "TopicEntry":
        if self.topic.startswith("aetheris."):
            raise ValueError("topic: is one of Aetheris' own: a job for each of their records would start itself")
        return self


class WebhookEntry(_StartEntry):
    """`[[webhooks]]`: a job for each delivery that is signed."""

    secret: _Path
    """A file with the key that signs, seen from this one."""


class StartsFile(BaseModel):
    """All of it."""

    model_config = ConfigDict(frozen=True)

    schedules: tuple[ScheduleEntry, ...] = ()
    topics: tuple[TopicEntry, ...] = ()
    webhooks: tuple[WebhookEntry, ...] = ()


def parsed(text: str) -> StartsFile:
    """The file from TOML: `[[schedules]]`, `[[topics]]`, `[[webhooks]]`.

    Raises:
        FileFault: naming the entry and the field.
    """
    document = toml_document(text, _ARRAYS, MAX_BYTES)
    kinds: tuple[type[_StartEntry], ...] = (ScheduleEntry, TopicEntry, WebhookEntry)
    found: dict[str, Any] = {
        array: [_entry(text, array, at, one, kind) for at, one in _entries(text, document, array)]
        for array, kind in zip(_ARRAYS, kinds, strict=True)
    }
    for array, entries in found.items():
        names = [one.name for one in entries]
        for at, name in enumerate(names):
            if name in names[:at]:
                line = toml_line(text, array, at, "name")
                raise FileFault(f"{array.removesuffix('s')} {name!r}: name: stands twice", line)
    if not any(found.values()):
        raise FileFault("starts nothing: there is no [[schedules]], no [[topics]] and no [[webhooks]]")
    return StartsFile(**found)


def _entries(text: str, document: Mapping[str, Any], array: str) -> list[tuple[int, Any]]:
    entries = document.get(array, [])
    if not isinstance(entries, list):
        raise FileFault(f"{array}: is no [[{array}]]", toml_key_line(text, array))
    return list(enumerate(cast("list[Any]", entries)))


def _entry(text: str, array: str, at: int, entry: Any, kind: type[Any]) -> Any:
    try:
        return kind.model_validate(entry)
    except ValidationError as error:
        where, wording = first_fault(error, kind.model_fields)
        field = ".".join(map(str, where)) or wording.partition(":")[0]
        name = cast("dict[str, Any]", entry).get("name") if isinstance(entry, dict) else None
        line = toml_line(text, array, at, field.partition(".")[0])
        named = f"{array.removesuffix('s')} {name or at + 1!r}"
        raise FileFault(f"{named}: {field}: {wording.removeprefix(f'{field}: ')}", line) from None
