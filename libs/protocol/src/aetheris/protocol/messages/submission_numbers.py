"""What a submission is counted by, so that none can be left out unseen (docs/receipts.md)."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SubmissionAnswer = Literal["born", "same_as", "refused", "void", "waits"]
"""What a planner says of a number: its job was created by it, or stood before; none comes of it; it was never laid into
the log; or it waits for room."""


class SubmissionNumber(BaseModel):
    """Of the submissions of a tenant that one life of a gateway lays into a partition of jobs.commands, from 1.

    `gateway` is that life's, and `salt` this number's own: 128 random bits each, hex. `at` (RFC 3339) is its clock's.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    gateway: str = Field(pattern="^[0-9a-f]{32}$")
    partition: int = Field(ge=0)
    number: int = Field(ge=1)
    at: str
    salt: str = Field(pattern="^[0-9a-f]{32}$")
