"""jobs.seals, beside seals: what was answered of submissions, how open jobs stand, and who was erased.

See docs/receipts.md, docs/hidden-values.md.
"""

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.messages.message_base import Message

ERASURE_KEY = "erasure"
"""The record key of what `policies` says of erased persons."""


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


class SubjectErasure(Message):
    """policies: the key of a person, named by its pseudonym alone, was destroyed; the log of seals is to have it."""

    type_name: ClassVar[str] = "subject_erasure"
    pseudonym: str = Field(pattern=r"^[0-9a-f]{32}$")
    erased_at: str
    by: str
    principal: RecordedPrincipal | None = None


class ErasedSubjectLine(Message):
    """jobs.seals: a gateway has said that it destroyed a key at `erased_at`; an auditor was told by `at`."""

    type_name: ClassVar[str] = "subject_erased"
    kind: Literal["subject_erased"] = "subject_erased"
    pseudonym: str
    erased_at: str
    at: str
    salt: str
    key_id: str
    signature: str
