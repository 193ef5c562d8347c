"""What a submission is counted by, and what becomes of it, so that none can be left out unseen (docs/receipts.md)."""

from typing import ClassVar, Literal

from pydantic import Field

from aetheris.protocol.messages.job_command import JobCommand
from aetheris.protocol.messages.message_base import Message
from aetheris.protocol.messages.record_struct import RecordStruct

ANSWERS_KEY = "submissions:answered"
"""The record key of all answers: a job's name has no colon."""

SubmissionAnswer = Literal["born", "same_as", "refused", "void", "waits"]
"""What a planner says of a number: its job was created by it, or stood before; none comes of it; it was never laid into
the log; or it waits for room."""


class SubmissionNumber(RecordStruct):
    """Of the submissions of a tenant that one life of a gateway lays into a partition of jobs.commands, from 1.

    `gateway` is that life's, and `salt` this number's own: 128 random bits each, hex. `at` (RFC 3339) is its clock's.
    """

    gateway: str = Field(pattern="^[0-9a-f]{32}$")
    partition: int = Field(ge=0)
    number: int = Field(ge=1)
    at: str
    salt: str = Field(pattern="^[0-9a-f]{32}$")


class SubmissionAnswered(Message):
    """jobs.events, of a partition and no job: what a planner says of a number.

    That a job was created by it is said by its birth, which has the number.
    """

    type_name: ClassVar[str] = "submission_answered"
    of_job: str
    tenant: str
    request_hash: str
    receipt: SubmissionNumber
    answer: SubmissionAnswer

    @property
    def job_id(self) -> str:
        """The record key, where the log has jobs' names: no job has such a one."""
        return ANSWERS_KEY


class Receipt(JobCommand):
    """What who submits gets, and what no topic has: a gateway's word that it laid a submission into jobs.commands.

    It is signed as a command is, and together with the submission that it is of.
    """

    type_name: ClassVar[str] = "receipt"
    request_hash: str
    receipt: SubmissionNumber


class ReceiptVoid(JobCommand):
    """A number that was taken for a submission which the brokers would not have: nobody was given its receipt."""

    type_name: ClassVar[str] = "receipt_void"
    request_hash: str
    receipt: SubmissionNumber
