"""jobs.seals, beside seals: what was answered of submissions, and how open jobs stand (docs/receipts.md)."""

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from aetheris.protocol.messages.message_base import Message


class AnsweredReceipt(BaseModel):
    """A receipt by its salted hash, and what the planner said of its number."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    receipt: str
    answer: str


class InterimSeal(BaseModel):
    """An open job by its salted hash: how many records it has, and the root of the tree over them (hex)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    job: str
    event_count: int
    tree: str


class AnsweredSubmissions(Message):
    """jobs.seals: what of a partition's answers lies below `up_to` is in this line, or in one before it.

    But for what lies at the offsets of `unjudged`, which its verifier could not judge.
    """

    type_name: ClassVar[str] = "answered_submissions"
    kind: Literal["answered_submissions"] = "answered_submissions"
    partition: int
    up_to: int
    answers: tuple[AnsweredReceipt, ...]
    unjudged: tuple[int, ...] | None = None
    at: str
    salt: str
    key_id: str
    signature: str


class InterimSeals(Message):
    """jobs.seals: jobs of a tenant that have not ended, as a verifier has audited them."""

    type_name: ClassVar[str] = "interim_seals"
    kind: Literal["interim_seals"] = "interim_seals"
    tenant: str
    partition: int
    jobs: tuple[InterimSeal, ...]
    at: str
    salt: str
    key_id: str
    signature: str
