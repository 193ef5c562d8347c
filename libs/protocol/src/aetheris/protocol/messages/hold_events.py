"""What keeps calls from starting, and lets them go on: a job's pauses, and freezes of more than a job."""

from typing import ClassVar

from pydantic import Field

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.messages.event_base import Event


class JobPaused(Event):
    """A person's word: nothing of the job starts until the pause of this number, counted from 1, is over."""

    event_type: ClassVar[str] = "job_paused"
    number: int = Field(ge=1)
    by: str
    reason: str | None = None


class JobResumed(Event):
    """A person's word: the pause of this number is over."""

    event_type: ClassVar[str] = "job_resumed"
    number: int = Field(ge=1)
    by: str
    reason: str | None = None


class JobFrozen(Event):
    """A freeze concerns the job: what its scope names does not start until the freeze of this number is over.

    The numbers are the scope's, counted from 1 over all jobs: a job may see some of them only.
    """

    event_type: ClassVar[str] = "job_frozen"
    scope: FreezeScope
    number: int = Field(ge=1, strict=True)
    by: str
    at: str
    """When it was ordered."""
    reason: str | None = None


class JobUnfrozen(Event):
    """The freeze of this number of the scope is over."""

    event_type: ClassVar[str] = "job_unfrozen"
    scope: FreezeScope
    number: int = Field(ge=1, strict=True)
    by: str
    at: str
    reason: str | None = None
    ordered: int | None = Field(default=None, ge=0, strict=True)
    """Where nobody had ordered it: the number of the scope's freeze that was over last, so that the next one counts."""
