"""By which call of another job a job has begun: its parent's, or that of the one whose place it takes."""

from pydantic import BaseModel, ConfigDict, Field

from aetheris.protocol.base.ids import derived

MOST_DEEP = 16
"""So many jobs may stand above one, each begun by the next."""

_END = "aetheris.ended."


def child_job_id(job_id: str, node_id: str) -> str:
    """The job that a call has begin: the same however often the call is made, and no client can name one so."""
    return derived("child", job_id, node_id)


def end_key(job_id: str) -> str:
    """The correlation key under which the end of a child job comes to the one that waits for it."""
    return f"{_END}{job_id}"


def is_end_key(correlation_key: str) -> bool:
    """Whether nobody but a planner may say anything under this key."""
    return correlation_key.startswith(_END)


class AwaitedBy(BaseModel):
    """The job that is told how this one ends; `as_of` is the offset there of the record that says that it waits."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    job_id: str
    as_of: int


class Begun(BaseModel):
    """The call by which a job has begun: `job_id`, node and key of it, in the log of another job.

    `depth`: how many jobs stand above it. `replaces`: that one has ended with it, and it takes its place.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    job_id: str
    node_id: str
    idempotency_key: str
    depth: int = Field(default=1, ge=1)
    replaces: bool = False
    awaited_by: AwaitedBy | None = None
    """None: nobody waits for its end, and it goes on when the other one ends."""
