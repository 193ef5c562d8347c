"""What every fact of jobs.events has."""

from typing import Annotated, ClassVar

from pydantic import BeforeValidator

from aetheris.protocol.messages.record_struct import PlainlyRead, RecordStruct

FIRST_RULES = 1
"""The version of the rules by which a job is judged that names none."""
KNOWN_RULES = frozenset({1})
"""Those that this build judges jobs by."""


def _version(said: object) -> int:
    """What is no whole number is a version that nobody knows."""
    return said if type(said) is int else 0


RulesVersion = Annotated[int, BeforeValidator(_version, json_schema_input_type=int), PlainlyRead()]


class Payload(RecordStruct):
    """What every payload has."""

    job_id: str


class Event(Payload):
    """A fact about a job."""

    event_type: ClassVar[str]
    caused_by: str | None = None


class KeyEvent(Event):
    """A fact about one invocation key."""

    node_id: str
    idempotency_key: str
