"""The part of the HTTP API (`api`) about what starts jobs: schedulers tell it, people read it (docs/schedules.md)."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, StringConstraints

from aetheris.protocol.api_models import RequestModel, ResponseModel

TOLD_EVERY_S = 60.0
"""How often a scheduler tells of itself at least."""
MOST_STARTS = 200
"""Of a scheduler, that are told; of the others how many there are."""
LONGEST_FAULT = 2_000

StartKind = Literal["schedule", "topic", "webhook"]
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
_Words = Annotated[str, StringConstraints(max_length=400)]
_Code = Annotated[str, StringConstraints(max_length=100)]


class StartedJob(RequestModel):
    """The job that was started last, when, and by what: a due time, a message's place, a delivery."""

    job_id: str = Field(min_length=1, max_length=200)
    at: AwareDatetime
    occasion: _Words


class RefusedStart(RequestModel):
    """What could start no job last: by what, when, and the code of why not."""

    code: _Code
    at: AwareDatetime
    occasion: _Words


class ToldStart(RequestModel):
    """One that starts jobs: `when` in words, `next_at` of a schedule, `waits`: why it can start none now."""

    kind: StartKind
    name: _Name
    when: _Words
    next_at: AwareDatetime | None = None
    waits: _Code | None = None
    last: StartedJob | None = None
    refused: RefusedStart | None = None


class SchedulerReport(RequestModel):
    """The body of POST /api/schedules: what a scheduler has, `left_out` others; or why its file can't be used."""

    scheduler: Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,128}$")]
    starts: tuple[ToldStart, ...] = Field(default=(), max_length=MOST_STARTS)
    left_out: int = Field(default=0, ge=0)
    fault: str | None = Field(default=None, max_length=LONGEST_FAULT)


class StartedJobView(ResponseModel):
    """As it was told; `status`: how the job stands, None where the lists have it no more."""

    job_id: str
    at: str
    occasion: str
    status: str | None = None


class RefusedStartView(ResponseModel):
    """As it was told."""

    code: str
    at: str
    occasion: str


class StartView(ResponseModel):
    """One that starts jobs, what it started last, and what could start none last."""

    kind: StartKind
    name: str
    when: str
    next_at: str | None = None
    waits: str | None = None
    last: StartedJobView | None = None
    refused: RefusedStartView | None = None


class SchedulerView(ResponseModel):
    """A scheduler as it told `at`, under the name `by` which its jobs are submitted.

    `is_heard`: it has told lately. `fault`: its file can't be used; then `starts` has what it had before.
    """

    scheduler: str
    by: str
    at: str
    is_heard: bool
    fault: str | None = None
    starts: tuple[StartView, ...]
    left_out: int = 0


class ScheduleList(ResponseModel):
    """The tenant's schedulers, as far as they were heard in the last week."""

    schedulers: tuple[SchedulerView, ...]


class ReportTaken(ResponseModel):
    """A report that was taken."""

    scheduler: str
