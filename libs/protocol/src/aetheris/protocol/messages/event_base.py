"""What every fact of jobs.events has."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Payload(BaseModel):
    """What every payload has."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    job_id: str


class Event(Payload):
    """A fact about a job."""

    event_type: ClassVar[str]
    caused_by: str | None = None


class KeyEvent(Event):
    """A fact about one invocation key."""

    node_id: str
    idempotency_key: str
