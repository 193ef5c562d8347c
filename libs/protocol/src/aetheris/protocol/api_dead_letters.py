"""What the HTTP API says of dead letters: records that a service could not decode, and put aside."""

from enum import StrEnum

from pydantic import Field

from aetheris.protocol.api_models import RequestModel, ResponseModel


class Redrive(StrEnum):
    """What redriving a dead letter does."""

    AGAIN = "again"
    """The record is appended to its topic once more, as it lies there."""
    ASKED_AGAIN = "asked_again"
    """Nothing, and it is refused: the service that wrote it says it again by itself, as long as it is wanted."""
    IN_PLACE = "in_place"
    """Nothing, and it is refused: the record counts where it lies, for services that can read it."""


class DeadLetterView(ResponseModel):
    """A record that was put aside; `offset` is its first place in the topic's `.dlq`, `record_offset` in the topic."""

    topic: str
    partition: int
    offset: int
    record_offset: int | None
    at: str
    """When it was put aside, RFC 3339."""
    reason: str | None
    type: str | None
    """What the record says that it is; nobody could check it."""
    repeats: int
    """How often it was put aside again."""
    omitted: str | None
    """Why its bytes are not beside the reason: the brokers would not have them."""
    redrive: Redrive
    redriven_at: str | None
    redriven_by: str | None


class DeadLetterList(ResponseModel):
    """The newest of each partition; `is_whole`: there are no others."""

    dead_letters: tuple[DeadLetterView, ...]
    is_whole: bool


class DeadLetterRecord(DeadLetterView):
    """With the record as it came: its key, each header's value, and its own value are base64."""

    key: str | None
    headers: tuple[tuple[str, str], ...]
    value: str


class RedriveBody(RequestModel):
    """The body of POST /dead-letters/{topic}/{partition}/{offset}/redrive."""

    reason: str = Field(min_length=1, max_length=1_000)
